"""Three traps of communication in pipelines (SUR-05), told from a measured step: who waits in vain, and for what.

Sums over more ranks than a stage has, in the middle of a step; gradients that are summed while nothing is computed;
small tensors that travel one by one. A pipeline that runs into any of them looks busy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from policies.ir.timeline import Span, Timeline

EXPOSED = 0.05
"""Share of a step from which on sums beside which a rank computes nothing are told."""
SMALL_BYTES = 1 << 16
"""A message below it takes as long as its latency."""
PACKABLE = 3
"""So many small ones in a row, with nothing computed in between, could have been one."""


class Way(StrEnum):
    MESSAGE = "message"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Communication:
    """One message or sum as one rank saw it, in seconds from the start of the step. ranks: all that take part in it."""

    rank: int
    way: Way
    ranks: tuple[int, ...]
    size_bytes: int
    start_s: float
    end_s: float


def traps(run: Timeline, communications: Sequence[Communication]) -> list[str]:
    """A line for each trap that a step ran into, with its numbers and what to do; empty where there is none."""
    return [*_wide_sums(run, communications), *_exposed_sums(run, communications), *_small_ones(run, communications)]


def _wide_sums(run: Timeline, communications: Iterable[Communication]) -> list[str]:
    """Over ranks of several stages, by a rank that has yet to compute: all of them wait for the slowest."""
    ends_s = {span.rank: span.end_s for span in sorted(run.spans, key=lambda span: span.end_s)}
    found = {
        one.ranks
        for one in communications
        if one.way is Way.SUM and one.start_s < ends_s.get(one.rank, 0.0) and not _within_a_stage(run, one)
    }
    return [
        f"ranks {_named(ranks)} sum in the middle of the step, though no stage is on all of them: each waits for the "
        "slowest. Give the replicas of each stage a group of their own"
        for ranks in sorted(found)
    ]


def _exposed_sums(run: Timeline, communications: Iterable[Communication]) -> list[str]:
    """Of a stage's gradients, while the rank computes nothing."""
    sums: dict[int, list[Communication]] = {}
    for one in communications:
        if one.way is Way.SUM and _within_a_stage(run, one):
            sums.setdefault(one.rank, []).append(one)
    exposed_s = {rank: _alone_s(own, _of(run, rank)) for rank, own in sums.items()}
    return [
        f"rank {rank} sums for {seconds * 1e3:.1f} ms of a step of {run.makespan_s * 1e3:.1f} ms while it computes "
        "nothing. Begin each layer's sum as soon as its last gradient is there"
        for rank, seconds in sorted(exposed_s.items())
        if seconds > EXPOSED * run.makespan_s > 0
    ]


def _alone_s(sums: Iterable[Communication], computing: Sequence[Span]) -> float:
    """Seconds in which some sum is on its way and nothing is computed."""
    total, reached = 0.0, float("-inf")
    for one in sorted(sums, key=lambda one: one.start_s):
        start, reached = max(one.start_s, reached), max(one.end_s, reached)
        beside = (min(reached, span.end_s) - max(start, span.start_s) for span in computing)
        total += max(0.0, reached - start) - sum(max(0.0, seconds) for seconds in beside)
    return total


def _small_ones(run: Timeline, communications: Iterable[Communication]) -> list[str]:
    """In a row, of one way to the same ranks."""
    worst: dict[tuple[int, Way, tuple[int, ...]], Sequence[Communication]] = {}
    ordered = sorted(communications, key=lambda one: (one.rank, one.start_s))
    for key, row in groupby(ordered, lambda one: (one.rank, one.way, one.ranks, _computed_before(run, one))):
        small = [one for one in row if one.size_bytes < SMALL_BYTES]
        if len(small) >= PACKABLE and len(small) > len(worst.get(key[:3], ())):
            worst[key[:3]] = small
    return [
        f"rank {rank} has {len(small)} {way}s in a row among ranks {_named(ranks)}, of {_mean(small) / 1e3:.1f} kB "
        "each: what they take is latency. Pack them into one"
        for (rank, way, ranks), small in sorted(worst.items())
    ]


def _within_a_stage(run: Timeline, one: Communication) -> bool:
    """There is a stage that all of these ranks hold."""
    holders: dict[int, set[int]] = {}
    for span in run.spans:
        holders.setdefault(span.action.stage, set()).add(span.rank)
    return any(ranks.issuperset(one.ranks) for ranks in holders.values())


def _computed_before(run: Timeline, one: Communication) -> int:
    return sum(span.start_s <= one.start_s for span in _of(run, one.rank))


def _of(run: Timeline, rank: int) -> list[Span]:
    return [span for span in run.spans if span.rank == rank]


def _mean(communications: Sequence[Communication]) -> float:
    return sum(one.size_bytes for one in communications) / len(communications)


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
