"""Memory pressure: told from the level and from the slope, before an allocation fails."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import torch

from worker.adapt.statistics import Memory

CGROUP = Path("/sys/fs/cgroup")
NEAR = 0.8
"""Share of the watermark from which on a slope counts: far below it, filling up is what training begins with."""
AHEAD_S = 10.0
"""A level that would pass the watermark within so many seconds has passed it."""
KEPT = 8
EVERY_S = 0.5


class Pressure(IntEnum):
    NONE = 0
    RISING = 1
    HIGH = 2


class Watch:
    """One device's level over time. Pure: moments come in.

    watermark: share of the whole from which on pressure is HIGH. RISING: the slope of the last samples leads there
    within AHEAD_S.
    """

    def __init__(self, watermark: float) -> None:
        self._watermark = watermark
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def take(self, now: float, memory: Memory) -> Pressure:
        """now: in seconds. Memory of unknown size never presses."""
        if not memory.total_bytes:
            return Pressure.NONE
        self._seen.append((now, memory.share))
        if memory.share >= self._watermark:
            return Pressure.HIGH
        if memory.share < NEAR * self._watermark or len(self._seen) < KEPT:
            return Pressure.NONE
        return Pressure.RISING if memory.share + AHEAD_S * self._slope() >= self._watermark else Pressure.NONE

    def _slope(self) -> float:
        """Share a second, by least squares: one allocation that comes and goes is no trend."""
        mean_t = sum(t for t, _ in self._seen) / len(self._seen)
        mean_x = sum(x for _, x in self._seen) / len(self._seen)
        spread = sum((t - mean_t) ** 2 for t, _ in self._seen)
        return sum((t - mean_t) * (x - mean_x) for t, x in self._seen) / spread if spread > 0 else 0.0


def measured(device: torch.device) -> Memory:
    """Of the device as a whole, other tenants included; on a CPU, of this process's cgroup where it has a limit."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(float(total - free - reusable), float(total))
    with contextlib.suppress(OSError, ValueError):
        folder = CGROUP / Path("/proc/self/cgroup").read_text().rpartition(":")[2].strip().lstrip("/")
        limit = (folder / "memory.max").read_text().strip()
        if limit != "max":
            return Memory(float((folder / "memory.current").read_text()), float(limit))
    return Memory()


class Gauge:
    """The newest measurement, taken at most every EVERY_S."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._device, self._clock = device, clock
        self._at: float | None = None
        self._newest = Memory()

    def read(self) -> Memory:
        now = self._clock()
        if self._at is None or now - self._at >= EVERY_S:
            self._at, self._newest = now, measured(self._device)
        return self._newest
