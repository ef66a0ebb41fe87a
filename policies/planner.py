"""The joint search for one job: stages and micro-batches for every device count, priced by event timing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from policies.cost import LayerCosts, durations, plan_memory_bytes, profile_at
from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind
from policies.partition.dynamic import partitions
from policies.timing import compiled, step_time_s

SCHEDULES = ("1f1b",)
"""Considered where the job pins none."""


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan with what it is predicted to cost. memory_bytes: per stage, of the rank that holds most."""

    plan: ParallelPlan
    step_time_s: float
    memory_bytes: tuple[int, ...]

    @property
    def order(self) -> tuple[float, int, int]:
        """Fastest first; among equals the fewest stages, then the fewest micro-batches."""
        return self.step_time_s, len(self.plan.stages), self.plan.microbatches


def device_counts(request: MenuRequest) -> tuple[int, ...]:
    """The sizes that the job allows, ascending."""
    allowed = request.allowed_devices or range(request.min_devices, request.max_devices + 1)
    return tuple(sorted({n for n in allowed if request.min_devices <= n <= request.max_devices}))


def microbatch_sizes(request: MenuRequest) -> tuple[int, ...]:
    """Sizes in samples that divide the global batch and that the request allows.

    Free sizes stay within what was measured: between the smallest and the largest profile.
    """
    batch = request.global_batch
    if request.microbatch_size is not None or request.microbatches is not None:
        size = request.microbatch_size or batch // (request.microbatches or 1)
        count = request.microbatches or (batch // size if size else 0)
        return (size,) if size > 0 and size * count == batch else ()
    measured = sorted(profile.microbatch_size for profile in request.profiles)
    sizes = tuple(n for n in range(measured[0], measured[-1] + 1) if batch % n == 0)
    return sizes or tuple(n for n in range(1, measured[0]) if batch % n == 0)


def best_plans(request: MenuRequest, kind: DeviceKind) -> dict[int, PricedPlan]:
    """The fastest plan that fits for each allowed device count; counts without any plan are absent."""
    best: dict[int, PricedPlan] = {}
    for priced in candidates(request, kind):
        count = priced.plan.world_size
        if count not in best or priced.order < best[count].order:
            best[count] = priced
    return best


def candidates(request: MenuRequest, kind: DeviceKind) -> Iterator[PricedPlan]:
    """Every plan worth pricing: one cut for each stage count, micro-batch size and schedule."""
    if not request.profiles:
        return
    counts = device_counts(request)
    names = (request.schedule,) if request.schedule else SCHEDULES
    own = tuple(p for p in request.profiles if p.device_kind == kind.name) or request.profiles
    for size in microbatch_sizes(request):
        costs = LayerCosts(profile_at(own, size))
        microbatches = request.global_batch // size
        shares = split(microbatches, request.replicas)
        if shares[-1] < 1:
            continue
        for name in names:
            cuts = _cuts(costs, kind, name, shares[0], max(counts, default=0) // request.replicas)
            for stages, bounds in cuts.items():
                if stages * request.replicas in counts and (not request.stages or stages in request.stages):
                    plan = make_plan(bounds, shares, size, name)
                    priced = price(plan, costs, kind)
                    if kind.memory_bytes is None or max(priced.memory_bytes) <= kind.memory_bytes:
                        yield priced


def _cuts(
    costs: LayerCosts, kind: DeviceKind, schedule: str, microbatches: int, most: int
) -> dict[int, tuple[int, ...]]:
    def in_flight(from_end: int) -> float:
        return microbatches if schedule == "gpipe" else min(microbatches, from_end)

    return partitions(costs, kind, most, in_flight)


def split(total: int, parts: int) -> tuple[int, ...]:
    """Nearly equal shares, larger ones first."""
    base, rest = divmod(total, parts)
    return tuple(base + (part < rest) for part in range(parts))


def make_plan(bounds: Iterable[int], shares: tuple[int, ...], size: int, schedule: str) -> ParallelPlan:
    """Replica j of stage s is rank j x stages + s, so that the ranks of one pipeline are neighbours."""
    cuts = list(pairwise(bounds))
    stages = tuple(
        StagePlan(first, stop, tuple(j * len(cuts) + stage for j in range(len(shares))), shares)
        for stage, (first, stop) in enumerate(cuts)
    )
    return ParallelPlan(stages, sum(shares), size, schedule)


def price(plan: ParallelPlan, costs: LayerCosts, kind: DeviceKind) -> PricedPlan:
    """Time the plan's longest pipeline and count its memory. costs: at the plan's micro-batch size."""
    ranks = len({stage.ranks[0] for stage in plan.stages})
    order = compiled(plan.schedule, ranks, max(plan.stages[0].shares))
    peaks = order.footprint.peak_activations
    in_flight = [peaks[rank] for rank in order.schedule.stage_rank]
    seconds = step_time_s(order, durations(costs, plan.stages, kind)) + kind.step_s
    return PricedPlan(plan, seconds, plan_memory_bytes(costs, plan, in_flight))
