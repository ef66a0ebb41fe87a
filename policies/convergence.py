"""Statistical efficiency of stale gradients (FORMULAS B2): how many more iterations an asynchronous pipeline needs.

SGD theory. For Adam or momentum it is a prior that measured losses must calibrate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Convergence:
    """What is known of the optimisation problem.

    smoothness: L. second_moments: mean squared gradient norm of each layer; they add up over a stage.
    initial_gap: f(x0) - f*. target: the mean squared gradient norm to reach.
    """

    smoothness: float
    second_moments: tuple[float, ...]
    initial_gap: float
    target: float

    @property
    def whole(self) -> float:
        return sum(self.second_moments)

    def staleness(self, bounds: Sequence[int], delays: Sequence[float]) -> float:
        """K = sum of (delay of a stage)^2 x (its second moment) (B2.1). bounds: of the stages, in layers."""
        moments = [sum(self.second_moments[a:b]) for a, b in pairwise(bounds)]
        return sum(delay * delay * moment for delay, moment in zip(delays, moments, strict=True))

    def iterations(self, staleness: float = 0.0) -> float:
        """T with the best constant learning rate (B2.3)."""
        a = math.sqrt(2 * self.initial_gap * self.smoothness * self.whole)
        b = 2 * self.smoothness * self.initial_gap * staleness / self.whole
        return ((a + math.sqrt(a * a + b * self.target)) / self.target) ** 2

    def ratio(self, staleness: float) -> float:
        """T(S) / T(1), in closed form (B2.3)."""
        return ((1 + math.sqrt(1 + self.target * staleness / self.whole**2)) / 2) ** 2


def delays(schedule: str, in_flight: Sequence[int]) -> tuple[int, ...]:
    """Updates between a stage's forward and its backward: micro-batches in flight less one; one with 2BW; else none."""
    if schedule == "2bw":
        return (1,) * len(in_flight)
    return tuple(alive - 1 for alive in in_flight) if schedule == "async-1f1b" else (0,) * len(in_flight)


def smoothness(gradients: Sequence[float], steps: Sequence[float], quantile: float = 0.9) -> float:
    """L from pairs of |g(x') - g(x)| on the SAME batch and |x' - x| (B2.7): a high quantile of their ratios.

    Raises:
        ValueError: fewer than 100 pairs; earlier estimates are noise.
    """
    if len(gradients) < 100:
        raise ValueError(f"an estimate needs at least 100 iterations, got {len(gradients)}")
    ratios = sorted(change / step for change, step in zip(gradients, steps, strict=True) if step > 0)
    return ratios[min(len(ratios) - 1, int(quantile * len(ratios)))]
