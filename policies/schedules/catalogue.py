"""The schedules by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from policies.ir.schedule import Schedule
from policies.schedules.gpipe import gpipe
from policies.schedules.interleaved import interleaved
from policies.schedules.one_f_one_b import (
    async_one_f_one_b,
    eager_one_f_one_b,
    one_f_one_b,
    two_buffered_weights,
)
from policies.schedules.sliced import sliced_one_f_one_b
from policies.schedules.v_shape import dualpipe_v, zbv
from policies.schedules.zero_bubble import zb_h1, zb_h2


@dataclass(frozen=True, slots=True)
class Family:
    """What a schedule's name stands for.

    chunks: stages a rank holds, None where the caller chooses. sliced: cuts sequences into slices.
    asynchronous: no flush, so gradients are of older weights.
    """

    make: Callable[..., Schedule]
    chunks: int | None = 1
    sliced: bool = False
    asynchronous: bool = False

    @property
    def recomputes(self) -> bool:
        """Whether a stage may keep its inputs only and run forward again: the worker does it for whole sequences, with
        the weights that the first forward had."""
        return not self.sliced and not self.asynchronous


FAMILIES: dict[str, Family] = {
    "gpipe": Family(gpipe),
    "1f1b": Family(one_f_one_b),
    "eager-1f1b": Family(eager_one_f_one_b),
    "interleaved-1f1b": Family(interleaved, chunks=None),
    "zb-h1": Family(zb_h1),
    "zb-h2": Family(zb_h2),
    "zbv": Family(zbv, chunks=2),
    "dualpipev": Family(dualpipe_v, chunks=2),
    "async-1f1b": Family(async_one_f_one_b, asynchronous=True),
    "2bw": Family(two_buffered_weights, asynchronous=True),
    "sliced-1f1b": Family(sliced_one_f_one_b, sliced=True),
}


def make_schedule(
    name: str, ranks: int, microbatches: int, *, chunks: int | None = None, slices: int | None = None
) -> Schedule:
    """The order of one step of one pipeline.

    chunks: stages each rank holds, for interleaved-1f1b (default 2). slices: for sliced-1f1b (default 2).

    Raises:
        ValueError: an unknown name, counts below one, or chunks or slices where the schedule has none.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown schedule {name!r}; choose one of {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    if min(ranks, microbatches, chunks or 1, slices or 1) < 1:
        raise ValueError("ranks, micro-batches, chunks and slices are counted from one")
    if chunks not in {None, family.chunks} and family.chunks is not None:
        raise ValueError(f"{name} holds {family.chunks} stage(s) a rank; only interleaved-1f1b takes another number")
    if slices not in {None, 1} and not family.sliced:
        raise ValueError(f"{name} does not slice sequences; only sliced-1f1b does")
    if family.chunks is None:
        return family.make(ranks, microbatches, chunks or 2)
    return family.make(ranks, microbatches, slices or 2) if family.sliced else family.make(ranks, microbatches)


@lru_cache(maxsize=1024)
def stage_ranks(name: str, ranks: int, chunks: int) -> tuple[int, ...]:
    """The rank that holds each stage: a V where the schedule is V-shaped, else round and round."""
    if name in {"zbv", "dualpipev"}:
        return (*range(ranks), *reversed(range(ranks)))
    return tuple(stage % ranks for stage in range(ranks * chunks))
