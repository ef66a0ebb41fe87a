"""The bubble share: how much of a step the ranks of a pipeline compute nothing, by their timers (BUB-02, BUB-13)."""

from collections.abc import Iterable

from policies.ir.timeline import Span


def computing_s(spans: Iterable[Span]) -> float:
    """Of one rank: forward and backward, without waiting for messages."""
    return sum(span.end_s - span.start_s for span in spans)


def bubble_share(computing_s: float, ranks: int, step_s: float) -> float:
    """Of a step of all ranks together, 0 to 1. computing_s: summed over ranks. step_s: from the beginning of a step to
    the end of its all-reduce, which all ranks leave together."""
    return min(1.0, max(0.0, 1.0 - computing_s / (ranks * step_s))) if step_s > 0 else 0.0
