"""The exact period of a pipeline in steady state, in closed form (FORMULAS B1.3)."""

from collections.abc import Sequence


def period_s(compute_s: Sequence[float], transfer_s: Sequence[float], in_flight: Sequence[int] | None = None) -> float:
    """W: seconds a micro-batch that a pipeline needs once it is full; transfers do not occupy compute.

    compute_s: forward and backward of each stage. transfer_s: one way over each boundary. in_flight: micro-batches
    alive at each stage (default: 1F1B, stages - s). Elementary cycles of the event graph are exactly the intervals of
    stages, so W is the largest of (their computing + their round trips) / (tokens on the cycle).
    """
    stages = len(compute_s)
    alive = in_flight or [stages - stage for stage in range(stages)]
    worst = 0.0
    for first in range(stages):
        total = 0.0
        for last in range(first, stages):
            total += compute_s[last] + (2 * transfer_s[last - 1] if last > first else 0.0)
            worst = max(worst, total / (alive[first] - alive[last] + 1))
    return worst
