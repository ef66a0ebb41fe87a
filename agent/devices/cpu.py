"""CPU slots. Slot i is measured by the i-th core that this process may use, though jobs are not pinned to it; memory is
the whole machine's."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from agent.devices.provider import Found, Reading
from scheduler.protocol.messages import DeviceInfo

FRESH_S = 0.1
FIRST = "the first sample: there is nothing yet to compare it with"
Ticks = tuple[int, int, int]


class CpuSlots:
    """The provider of CPU devices."""

    names = ("busy_percent", "steal_percent", "memory_used_bytes", "memory_total_bytes")
    blocks = False

    def __init__(
        self, slots: Sequence[DeviceInfo], stat: Path = Path("/proc/stat"),
        clock_s: Callable[[], float] = time.monotonic, cores: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """cores: that measure the slots, by number."""
        self._numbers = tuple(cores) if cores is not None else usable_cores()
        self._slots = {slot.id: slot for slot in slots}
        self._stat, self._clock_s = stat, clock_s
        self._read_at_s: float | None = None
        self._cores: dict[int, Ticks] = {}
        self._memory: dict[str, float] = {}
        self._before: dict[str, Ticks] = {}

    def find(self) -> Found:
        return Found(tuple(self._slots.values()))

    def read(self, id: str) -> Reading:
        index = self._slots[id].index
        self._look()
        reading = Reading(values=dict(self._memory))
        now = self._cores.get(self._numbers[index]) if index < len(self._numbers) else None
        if now is None:
            return _without_times(reading, f"slot {index} has no core: {len(self._numbers)} may be used here")
        before = self._before.get(id)
        self._before[id] = now
        if before is None or (total := now[0] - before[0]) <= 0:
            return _without_times(reading, FIRST)
        reading.values["busy_percent"] = 100 * (now[1] - before[1]) / total
        reading.values["steal_percent"] = 100 * (now[2] - before[2]) / total
        return reading

    def _look(self) -> None:
        """One look serves all slots."""
        now_s = self._clock_s()
        if self._read_at_s is None or now_s - self._read_at_s >= FRESH_S:
            self._read_at_s = now_s
            self._cores = core_ticks(self._stat.read_text())
            memory = psutil.virtual_memory()
            self._memory = {"memory_used_bytes": memory.total - memory.available, "memory_total_bytes": memory.total}


def _without_times(reading: Reading, why: str) -> Reading:
    reading.missing |= {"busy_percent": why, "steal_percent": why}
    return reading


def usable_cores() -> tuple[int, ...]:
    """By number: those of the machine, or of a container that has some of them."""
    return tuple(sorted(os.sched_getaffinity(0)))


def core_ticks(stat: str) -> dict[int, Ticks]:
    """Of each core by its number, from /proc/stat: clock ticks in all, busy (stolen ones among them), and stolen by a
    hypervisor. Cores that are switched off are not there."""
    cores = {}
    for line in stat.splitlines():
        if line.startswith("cpu") and line[3].isdigit():
            name, *ticks = line.split()
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, ticks[:8])
            busy = user + nice + system + irq + softirq + steal
            cores[int(name[3:])] = busy + idle + iowait, busy, steal
    return cores
