"""Stage partitioning by dynamic programming over the period W with non-overlapped communication (FORMULAS B1.4).

All recurrences run from the last stage to the first. So a stage knows how many follow it, hence how many micro-batches
it keeps alive, and one run gives the best cut for every number of stages.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.partition.blocks import Blocks, Bounds, Floats

Combine = Callable[[Floats, Floats, Floats], Floats]
"""(value behind the cut, time of the stage in front, cost of the cut) -> value; `behind` and `cut` are rows."""


def loop(behind: Floats, own: Floats, cut: Floats) -> Floats:
    """W of two neighbours: the slower one, or half of the loop that goes through both and back."""
    return np.maximum(np.maximum(behind, own), (behind + own) / 2 + cut)


def compute_only(behind: Floats, own: Floats, cut: Floats) -> Floats:
    """The heaviest stage; transfers are ignored."""
    return np.maximum(behind, own)


def overlapped(behind: Floats, own: Floats, cut: Floats) -> Floats:
    """The heaviest stage or round trip, as if transfers were hidden behind computing."""
    return np.maximum(np.maximum(behind, own), 2 * cut)


class Dynamic:
    """The dynamic programme over one model's blocks.

    weights: prefix sums that are balanced (default: time). overhead_s: what each stage costs besides its layers.
    fits: for the k-th stage from the end (from 1), which [first, stop) fit its memory; None for no limit.
    slow: factor on the k-th stage from the end; None where all devices are alike.
    """

    def __init__(
        self,
        blocks: Blocks,
        overhead_s: float = 0.0,
        *,
        weights: Floats | None = None,
        fits: Callable[[int], NDArray[np.bool_]] | None = None,
        slow: Callable[[int], float] | None = None,
    ) -> None:
        prefix = blocks.time_s if weights is None else weights
        self.blocks = blocks
        self._own: Floats = prefix[None, :] - prefix[:, None] + overhead_s
        self._upper = np.triu(np.ones_like(self._own, dtype=np.bool_), 1)
        self._fits, self._slow = fits, slow

    def _stage(self, k: int) -> Floats:
        """Time of [row, column) as the k-th stage from the end; infinite where it is empty or does not fit."""
        own = self._own * self._slow(k) if self._slow else self._own
        return np.where(self._upper & self._fits(k) if self._fits else self._upper, own, np.inf)

    def best(self, most_stages: int, combine: Combine = loop) -> "Cuts":
        """The best cut for each number of stages up to `most_stages`."""
        value = np.full(len(self.blocks) + 1, np.inf)
        value[-1] = 0.0
        choices: list[NDArray[np.intp]] = []
        finite = [False]
        for k in range(1, min(most_stages, len(self.blocks)) + 1):
            own = self._stage(k)
            behind = value[None, :]
            table = np.maximum(behind, own) if k == 1 else combine(behind, own, self.blocks.cut_s[None, :])
            table = np.where(np.isfinite(own), table, np.inf)
            choices.append(table.argmin(axis=1))
            value = table.min(axis=1)
            finite.append(bool(np.isfinite(value[0])))
        return Cuts(self.blocks, choices, finite)

    def within(self, stages: int, period: float, depth: int = 1) -> Bounds | None:
        """A cut into `stages` whose exact period is at most `period`, or None where there is none.

        depth: micro-batches more alive in front of each boundary than behind. With e the excess of the worst cycle that
        starts at a stage, e = t + max(-W, e' + 2c - depth x W); the smallest e for each (boundary, stages) decides.
        """
        value = np.full(len(self.blocks) + 1, np.inf)
        value[-1] = -np.inf
        choices: list[NDArray[np.intp]] = []
        for k in range(1, stages + 1):
            behind = value[None, :] + 2 * self.blocks.cut_s[None, :] - depth * period
            table = self._stage(k) + np.maximum(-period, behind)
            choices.append(table.argmin(axis=1))
            value = table.min(axis=1)
            value = np.where(value <= period * 1e-12, value, np.inf)
        return Cuts(self.blocks, choices, [bool(np.isfinite(value[0]))] * (stages + 1)).get(stages)

    def exact(self, bounds: Bounds, period_of: Callable[[Bounds], float], depth: int = 1, rounds: int = 40) -> Bounds:
        """From a first cut to one whose exact period no other cut beats: ask for less until there is none."""
        stages, period = len(bounds) - 1, period_of(bounds)
        for _ in range(rounds):
            better = self.within(stages, period * (1 - 1e-9), depth)
            if better is None:
                break
            bounds, period = better, min(period * (1 - 1e-9), period_of(better))
        return bounds


@dataclass(frozen=True, eq=False)
class Cuts:
    """What one run found: choices[k - 1] leads from each boundary to the next, with k stages left."""

    blocks: Blocks
    choices: list[NDArray[np.intp]]
    finite: list[bool]

    def get(self, stages: int) -> Bounds | None:
        """The cut into so many stages; None where nothing fits."""
        if stages >= len(self.finite) or not self.finite[stages]:
            return None
        boundaries = [0]
        for choice in reversed(self.choices[:stages]):
            boundaries.append(int(choice[boundaries[-1]]))
        return self.blocks.bounds(boundaries)
