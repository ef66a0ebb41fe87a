"""How free devices are handed out to jobs that start together."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(slots=True)
class Claim:
    """A job about to start. step_time_s: by device count, only sizes that fit; size: what it has been given."""

    job: int
    remaining_steps: int
    step_time_s: Mapping[int, float]
    size: int

    def best_step(self, free: int) -> tuple[float, int]:
        """The growth that saves most seconds of remaining work per device added, and its new size; 0 for none."""
        now = self.step_time_s[self.size]
        options = [
            (self.remaining_steps * (now - seconds) / (size - self.size), -size)
            for size, seconds in self.step_time_s.items()
            if self.size < size <= self.size + free and seconds < now
        ]
        gain, size = max(options, default=(0.0, 0))
        return gain, -size


def grow(claims: list[Claim], free: int) -> int:
    """Hand out up to `free` devices, step by step to the job that gains most; what is left over is returned.

    Among equals the earlier claim. (FORMULAS B5.3, for jobs that start now.) A claim's gain only falls as devices go,
    so it is looked at again only when it comes first.
    """
    first = [
        (-gain, index, size) for index, claim in enumerate(claims) for gain, size in [claim.best_step(free)] if size
    ]
    heapify(first)
    while free > 0 and first:
        gain, index, size = heappop(first)
        claim = claims[index]
        now, wanted = claim.best_step(free)
        if (-now, wanted) == (gain, size):
            free -= size - claim.size
            claim.size = size
            now, wanted = claim.best_step(free)
        if wanted:
            heappush(first, (-now, index, wanted))
    return free
