"""Interleaved 1F1B (Narayanan et al., 2021): each rank holds v stages, P apart, and the bubble shrinks by v."""

from itertools import pairwise

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Idle (P - 1)(F + B) of one chunk; peak [2(P - 1 - s) + (v - 1)P + 1] / v on rank s, for m a multiple of P.

    Micro-batches go round in groups of P, each group through all chunks. Where m is no multiple of P the groups are as
    equal as they can be without being smaller than P, larger ones first: a smaller group would deadlock.
    """
    rounds = max(1, microbatches // ranks)
    base, rest = divmod(microbatches, rounds)
    firsts = [group * base + min(group, rest) for group in range(rounds + 1)]
    groups = [range(first, stop) for first, stop in pairwise(firsts)]
    forwards = [(chunk, i) for group in groups for chunk in range(chunks) for i in group]
    backwards = [(chunk, i) for group in groups for chunk in reversed(range(chunks)) for i in group]
    orders = []
    for rank in range(ranks):
        ahead = min(2 * (ranks - 1 - rank) + (chunks - 1) * len(groups[0]), len(forwards) - 1)
        order = [Action(chunk * ranks + rank, Kind.FORWARD, i) for chunk, i in forwards[:ahead]]
        for position, (chunk, i) in enumerate(backwards):
            order += [Action(c * ranks + rank, Kind.FORWARD, j) for c, j in forwards[ahead + position :][:1]]
            order.append(Action(chunk * ranks + rank, Kind.BACKWARD, i))
        orders.append(tuple(order))
    stage_rank = tuple(stage % ranks for stage in range(chunks * ranks))
    return Schedule("interleaved-1f1b", microbatches, stage_rank, tuple(orders), chunks=chunks)
