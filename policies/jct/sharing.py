"""How free devices are handed out to jobs that start together."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Claim:
    """A job about to start. step_time_s: by device count, only sizes that fit; size: what it has been given."""

    job: int
    priority: int
    remaining_steps: int
    step_time_s: Mapping[int, float]
    size: int

    def best_step(self, free: int) -> tuple[float, int] | None:
        """The growth that saves most seconds of remaining work per device added, and its new size."""
        now = self.step_time_s[self.size]
        options = [
            (self.remaining_steps * (now - seconds) / (size - self.size), -size)
            for size, seconds in self.step_time_s.items()
            if self.size < size <= self.size + free and seconds < now
        ]
        if not options:
            return None
        gain, size = max(options)
        return gain, -size


def grow(claims: list[Claim], free: int) -> int:
    """Hand out up to `free` devices, step by step to the job that gains most; what is left over is returned.

    Higher priority strictly first; among equals the earlier claim. (FORMULAS B5.3, for jobs that start now.)
    """
    while free > 0:
        steps = [
            (claim.priority, step, -index) for index, claim in enumerate(claims) if (step := claim.best_step(free))
        ]
        if not steps:
            break
        _, (_, size), index = max(steps, key=lambda item: (item[0], item[1][0], item[2]))
        claim = claims[-index]
        free -= size - claim.size
        claim.size = size
    return free
