"""Memory pressure: told from the level and from the slope, before an allocation fails."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

import torch

from worker.adapt.statistics import Memory

CGROUP, PROC_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
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
        if not self._seen or now - self._seen[-1][0] >= EVERY_S:  # steps may be shorter than what is measured is new
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
    """Of the device as a whole, other tenants included; on a CPU, of the fullest cgroup around this process that has a
    limit."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(float(total - free - reusable), float(total))
    return max(_limited(_own_group()), key=lambda memory: memory.share, default=Memory())


def _own_group() -> Path:
    """Of cgroup v2, below CGROUP; the root itself where there is none."""
    with contextlib.suppress(OSError):
        for line in PROC_CGROUP.read_text().splitlines():
            if line.startswith("0::/"):
                return CGROUP / line[len("0::/") :]
    return CGROUP


def _limited(group: Path) -> Iterator[Memory]:
    """The group and those around it, of which each may have a limit. Pages of files that were not used lately do not
    count: the kernel drops them before it runs out."""
    for folder in (group, *group.parents):
        if not folder.is_relative_to(CGROUP):
            return
        with contextlib.suppress(OSError, ValueError):
            limit = (folder / "memory.max").read_text().strip()
            if limit != "max":
                used = int((folder / "memory.current").read_text()) - _reclaimable(folder)
                yield Memory(float(max(0, used)), float(limit))


def _reclaimable(folder: Path) -> int:
    lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return next((int(value) for name, value in lines if name == "inactive_file"), 0)


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
