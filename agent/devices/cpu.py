"""CPU slots. Slot i is measured by core i, though jobs are not pinned to it; memory is the whole machine's."""

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
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._slots = {slot.id: slot for slot in slots}
        self._stat, self._clock_s = stat, clock_s
        self._read_at_s: float | None = None
        self._cores: list[Ticks] = []
        self._memory: dict[str, float] = {}
        self._before: dict[str, Ticks] = {}

    def find(self) -> Found:
        return Found(tuple(self._slots.values()))

    def read(self, id: str) -> Reading:
        index = self._slots[id].index
        self._look()
        reading = Reading(values=dict(self._memory))
        if index >= len(self._cores):
            return _without_times(reading, f"slot {index} has no core: this machine has {len(self._cores)}")
        before, now = self._before.get(id), self._cores[index]
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


def core_ticks(stat: str) -> list[Ticks]:
    """Of each core, from /proc/stat: clock ticks in all, busy (stolen ones among them), and stolen by a hypervisor."""
    cores = []
    for line in stat.splitlines():
        if line.startswith("cpu") and line[3].isdigit():
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, line.split()[1:9])
            busy = user + nice + system + irq + softirq + steal
            cores.append((busy + idle + iowait, busy, steal))
    return cores
