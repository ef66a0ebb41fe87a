"""Statistical efficiency of stale gradients (FORMULAS B2): how many more iterations an asynchronous pipeline needs.

SGD theory. For Adam or momentum it is a prior that measured losses must calibrate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import least_squares


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
        ValueError: fewer than 100 pairs; earlier estimates are noise. Or no step has moved anything.
    """
    if len(gradients) < 100:
        raise ValueError(f"an estimate needs at least 100 iterations, got {len(gradients)}")
    ratios = sorted(change / step for change, step in zip(gradients, steps, strict=True) if step > 0)
    if not ratios:
        raise ValueError("no step has moved any weight")
    return ratios[min(len(ratios) - 1, int(quantile * len(ratios)))]


@dataclass(frozen=True, slots=True)
class Noise:
    """Of one step's gradients (B5.4). squared: |true gradient|^2. variance: of one sample's gradient, summed."""

    squared: float
    variance: float


def gradient_noise(parts: Sequence[float], mean: float, size: int) -> Noise:
    """Unbiased, from squared norms of the n micro-batches' gradients and of their mean. size: samples of a micro-batch.

    Raises:
        ValueError: one micro-batch tells nothing of its spread.
    """
    n = len(parts)
    if n < 2:
        raise ValueError("gradient noise needs at least two micro-batches")
    average = sum(parts) / n
    return Noise((n * mean - average) / (n - 1), (average - mean) * n * size / (n - 1))


def noise_scale(steps: Sequence[Noise]) -> float:
    """Samples of a batch at which noise and gradient are equal (B5.4: phi): the ratio of the means over many steps."""
    squared = sum(step.squared for step in steps)
    return sum(step.variance for step in steps) / squared if squared > 0 else math.inf


def loss_floor(losses: Sequence[float]) -> float:
    """f*, from l(t) = 1 / (b0 t + b1) + b2 with b2 >= 0, fitted to the losses by least squares (B2.7)."""
    steps, values = np.arange(len(losses)), np.asarray(losses)
    spread = max(values.max() - values.min(), 1e-12)

    def residuals(b: np.ndarray) -> np.ndarray:
        found: np.ndarray = 1 / (b[0] * steps + b[1]) + b[2] - values
        return found

    start = [1 / (spread * max(len(losses), 1)), 1 / spread, max(values.min() - 0.1 * spread, 0.0)]
    bounds = ([0.0, 1e-12, 0.0], [np.inf, np.inf, max(float(values.max()), 1e-12)])
    return float(least_squares(residuals, start, bounds=bounds, x_scale=np.abs(start) + 1e-9).x[2])
