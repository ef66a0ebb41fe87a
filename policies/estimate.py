"""Closed forms of a step's time by schedule. They choose what is worth timing; event timing decides."""

from collections.abc import Sequence

from policies.cost import Durations
from policies.partition.bound import flush_s, period_s


def step_estimate_s(name: str, durations: Durations, stage_rank: Sequence[int], microbatches: int) -> float:
    """A flushed step of m micro-batches, without all-reduce and optimizer (FORMULAS B1.6 and B3).

    Exact for balanced stages without transfers, and within some percent otherwise.
    """
    factor = [durations.slow[rank] if durations.slow else 1.0 for rank in stage_rank]
    own = [time * slow for time, slow in zip(durations.compute_s, factor, strict=True)]
    weight = [time * slow for time, slow in zip(durations.backward_weight_s, factor, strict=True)]
    stages, ranks = len(stage_rank), max(stage_rank) + 1
    transfer = [cost if stage_rank[i] != stage_rank[i + 1] else 0.0 for i, cost in enumerate(durations.transfer_s)]
    on_rank = [0.0] * ranks
    for rank, time in zip(stage_rank, own, strict=True):
        on_rank[rank] += time
    if stages > ranks:
        fill = (ranks - 1) * sum(own) / stages
        if name in {"zbv", "dualpipev"}:
            fill -= 2 * (ranks - 1) * sum(weight) / stages
        return microbatches * max(on_rank) + max(0.0, fill) + 2 * sum(transfer)
    if name == "gpipe":
        forward = [time * slow for time, slow in zip(durations.forward_s, factor, strict=True)]
        backward = [whole - ahead for whole, ahead in zip(own, forward, strict=True)]
        return flush_s(own, transfer, microbatches, max(forward) + max(backward))
    depth = {"eager-1f1b": 2, "zb-h2": 2}.get(name, 1)
    period = period_s(own, transfer, [1 + depth * (stages - 1 - stage) for stage in range(stages)])
    saved = {"zb-h1": 2.0, "zb-h2": 3.0}.get(name, 0.0) * (sum(weight) - max(weight))
    return max(microbatches * max(own), flush_s(own, transfer, microbatches, period) - saved)
