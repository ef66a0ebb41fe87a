"""Plans and what they cost: shares, rank numbers, step time by event timing, memory by stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from policies.cost import LayerCosts, Memory, durations, plan_memory_bytes
from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.device import DeviceKind
from policies.schedules.assign import schedule_of
from policies.schedules.catalogue import stage_ranks
from policies.timing import compiled, index_schedule, step_time_s


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan with what it is predicted to cost. memory_bytes: per stage. time_to_accuracy_s: where it was asked for."""

    plan: ParallelPlan
    step_time_s: float
    memory_bytes: tuple[int, ...]
    time_to_accuracy_s: float | None = None

    @property
    def order(self) -> tuple[float, int, int, int]:
        """Fastest first; among equals the fewest stages, then the least memory, then the fewest micro-batches."""
        seconds = float(f"{self.step_time_s:.9g}")
        return seconds, len(self.plan.stages), max(self.memory_bytes), self.plan.microbatches


def split(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Shares that end as early as they can where replica j handles weights[j] a second; each at least 1."""
    shares = [1] * len(weights)
    ready = [(2 / weight, j) for j, weight in enumerate(weights)]
    heapify(ready)
    for _ in range(total - len(weights)):
        _, j = ready[0]
        shares[j] += 1
        heapreplace(ready, ((shares[j] + 1) / weights[j], j))
    return tuple(shares)


def make_plan(
    bounds: Sequence[int],
    shares: tuple[int, ...],
    size: int,
    schedule: str,
    chunks: int = 1,
    memory: Memory | None = None,
) -> ParallelPlan:
    """Rank p of pipeline j is rank j x P + p of the world, so that the ranks of one pipeline are neighbours."""
    memory = memory or Memory()
    cuts = list(pairwise(bounds))
    ranks = len(cuts) // chunks
    holders = stage_ranks(schedule, ranks, chunks)
    stages = tuple(
        StagePlan(first, stop, tuple(j * ranks + rank for j in range(len(shares))), shares, memory.recompute)
        for (first, stop), rank in zip(cuts, holders, strict=True)
    )
    return ParallelPlan(stages, sum(shares), size, schedule, memory.precision, offload=memory.offload)


def uneven_plan(
    bounds: Sequence[int], replicas: Sequence[int], microbatches: int, size: int, schedule: str, memory: Memory
) -> ParallelPlan:
    """Stages with their own numbers of replicas; ranks are numbered stage by stage."""
    stages, rank = [], 0
    for (first, stop), count in zip(pairwise(bounds), replicas, strict=True):
        ranks, shares = tuple(range(rank, rank + count)), split(microbatches, [1.0] * count)
        stages.append(StagePlan(first, stop, ranks, shares, memory.recompute))
        rank += count
    return ParallelPlan(tuple(stages), microbatches, size, schedule, memory.precision, offload=memory.offload)


def price(plan: ParallelPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = ()) -> PricedPlan:
    """Time each pipeline of a plan and count its memory. costs: at the plan's micro-batch size."""
    if any(stage.shares != plan.stages[0].shares for stage in plan.stages):
        return _price_uneven(plan, costs, kind, slow)
    replicas = len(plan.stages[0].ranks)
    ranks = plan.world_size // replicas
    chunks = len(plan.stages) // ranks
    peaks: list[float] = []
    versions: list[int] = []
    seconds = 0.0
    pipelines = zip(plan.stages[0].shares, pipelines_of(slow, ranks, replicas), strict=True)
    for share, own in dict.fromkeys(pipelines):
        order = compiled(plan.schedule, ranks, share, chunks)
        times = durations(costs, plan, kind, own if slow else ())
        seconds = max(seconds, step_time_s(order, times) + kind.step_s)
        held = [order.footprint.peak_held[rank] for rank in order.schedule.stage_rank]
        peaks = [max(pair) for pair in zip(peaks or held, held, strict=True)]
        versions = [order.footprint.weight_versions[rank] for rank in order.schedule.stage_rank]
    return PricedPlan(plan, seconds, plan_memory_bytes(costs, plan, peaks, versions))


def _price_uneven(plan: ParallelPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float]) -> PricedPlan:
    order = index_schedule(schedule_of(plan))
    padded = (*slow, *[1.0] * plan.world_size)[: plan.world_size] if slow else ()
    seconds = step_time_s(order, durations(costs, plan, kind, padded)) + kind.step_s
    peaks = [max(order.footprint.peak_held[rank] for rank in stage.ranks) for stage in plan.stages]
    return PricedPlan(plan, seconds, plan_memory_bytes(costs, plan, peaks))


def fits(priced: PricedPlan, kind: DeviceKind) -> bool:
    """Whether every rank holds all of its stages."""
    if kind.memory_bytes is None:
        return True
    held: dict[int, int] = {}
    for stage, size in zip(priced.plan.stages, priced.memory_bytes, strict=True):
        held[stage.ranks[0]] = held.get(stage.ranks[0], 0) + size
    return max(held.values()) <= kind.memory_bytes


def pipelines_of(slow: Sequence[float], ranks: int, replicas: int) -> list[tuple[float, ...]]:
    """The slowdowns of each pipeline's ranks; devices beyond `slow` are as they should be."""
    padded = (*slow, *[1.0] * max(0, ranks * replicas - len(slow)))
    return [tuple(padded[j * ranks : (j + 1) * ranks]) for j in range(replicas)]
