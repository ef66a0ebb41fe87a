"""The exact period of a pipeline in steady state, in closed form (FORMULAS B1.3)."""

from collections.abc import Sequence
from itertools import pairwise


def period_s(compute_s: Sequence[float], transfer_s: Sequence[float], in_flight: Sequence[int] | None = None) -> float:
    """W: seconds a micro-batch that a pipeline needs once it is full; transfers do not occupy compute.

    compute_s: forward and backward of each stage. transfer_s: one way over each boundary. in_flight: micro-batches
    alive at each stage (default: 1F1B, stages - s). Elementary cycles of the event graph are exactly the intervals of
    stages, so W is the largest of (their computing + their round trips) / (tokens on the cycle).

    Found by Dinkelbach's iteration: the worst interval at the present W gives the next W; each round is linear.
    """
    stages = len(compute_s)
    drops = [1] * (stages - 1) if in_flight is None else [a - b for a, b in pairwise(in_flight)]
    best = max(compute_s)
    while True:
        excess, total, tokens = 0.0, 0.0, 0
        worst: tuple[float, float, int] = (best * 1e-12, 0.0, 0)
        for stage, own in enumerate(compute_s):
            if stage and excess + 2 * transfer_s[stage - 1] - best * drops[stage - 1] > -best:
                total, tokens = total + 2 * transfer_s[stage - 1] + own, tokens + drops[stage - 1]
            else:
                total, tokens = own, 1
            excess = total - best * tokens
            worst = max(worst, (excess, total, tokens))
        if not worst[2]:
            return best
        best = worst[1] / worst[2]


def flush_s(compute_s: Sequence[float], transfer_s: Sequence[float], microbatches: int, period: float) -> float:
    """Upper bound of a flushed step (FORMULAS B1.6): one micro-batch through and back, the others W apart."""
    return sum(compute_s) + 2 * sum(transfer_s) + (microbatches - 1) * period
