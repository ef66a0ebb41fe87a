"""The machine as a whole: load, stolen time, memory, pressure stalls, page faults."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from agent.telemetry.rates import FIRST, Rates

NAMES = (
    "load_1m", "busy_percent", "steal_percent", "memory_used_bytes", "memory_total_bytes",
    "cpu_pressure_percent", "memory_pressure_percent", "io_pressure_percent", "page_faults_per_s",
    "major_page_faults_per_s",
)  # fmt: skip
_FAULTS = {"pgfault": "page_faults", "pgmajfault": "major_page_faults"}

Answer = tuple[dict[str, float], dict[str, str]]


class Host:
    """Cheap: a few small files of /proc."""

    def __init__(self, proc: Path = Path("/proc"), clock_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock_s = proc, clock_s
        self._ticks: tuple[int, ...] | None = None
        self._faults = Rates()

    def read(self) -> Answer:
        """(values, reasons for those that are missing)."""
        values = {"load_1m": os.getloadavg()[0]}
        memory = psutil.virtual_memory()
        values |= {"memory_used_bytes": memory.total - memory.available, "memory_total_bytes": memory.total}
        missing: dict[str, str] = {}
        for part in (self._times, self._pressure, self._vm):
            found, reasons = part()
            values |= found
            missing |= reasons
        return values, missing

    def _times(self) -> Answer:
        names = ("busy_percent", "steal_percent")
        try:
            first = (self._proc / "stat").read_text().partition("\n")[0]
            ticks = tuple(map(int, first.split()[1:9]))
        except (OSError, ValueError) as error:
            return {}, dict.fromkeys(names, f"{self._proc}/stat cannot be read: {error}")
        before, self._ticks = self._ticks, ticks
        spent = [now - then for now, then in zip(ticks, before or ticks, strict=False)]
        total = sum(spent)
        if total <= 0:
            return {}, dict.fromkeys(names, FIRST)
        _, _, _, idle, iowait, _, _, steal = spent
        return {"busy_percent": 100 * (total - idle - iowait) / total, "steal_percent": 100 * steal / total}, {}

    def _pressure(self) -> Answer:
        """The part of the last ten seconds in which some process waited for it."""
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        for what in ("cpu", "memory", "io"):
            name = f"{what}_pressure_percent"
            try:
                some = (self._proc / "pressure" / what).read_text().partition("avg10=")[2]
                values[name] = float(some.partition(" ")[0])
            except (OSError, ValueError):
                missing[name] = "this kernel tells no pressure stalls"
        return values, missing

    def _vm(self) -> Answer:
        try:
            lines = (line.split() for line in (self._proc / "vmstat").read_text().splitlines())
            counters = {_FAULTS[line[0]]: float(line[1]) for line in lines if line[0] in _FAULTS}
        except (OSError, ValueError, IndexError) as error:
            why = f"{self._proc}/vmstat cannot be read: {type(error).__name__}"
            return {}, {f"{name}_per_s": why for name in _FAULTS.values()}
        return self._faults.of(counters, self._clock_s())
