"""The joint search for one job: stages, replicas, micro-batches, schedule and recompute for every device count.

For each way to divide the devices the partition gives good cuts; closed forms rank them; event timing decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from policies.cost import LayerCosts, Memory, all_reduce_s, durations, plan_memory_bytes, profile_at
from policies.estimate import step_estimate_s
from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind
from policies.partition.cuts import Cutter
from policies.schedules.catalogue import FAMILIES, stage_ranks
from policies.timing import compiled, step_time_s

RUNNERS_UP = 4
"""Plans that a ranking has at least, where there are so many."""


@dataclass(frozen=True, slots=True)
class Search:
    """What may be searched beyond the request.

    schedules: where the job pins none, simplest first. any_replicas: try every divisor of the device count. slow:
    factor on each rank's computing; empty where all are alike. recompute, offload: knobs that may save memory.
    precision: of the plan and of the bytes in the profile.
    effort: how many plans are timed, over all device counts. blocks: layers are condensed to about so many.
    """

    schedules: tuple[str, ...] = ("1f1b",)
    any_replicas: bool = False
    slow: tuple[float, ...] = ()
    recompute: bool = False
    offload: bool = False
    precision: str = "float32"
    effort: int = 200
    blocks: int = 256


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


def best_plans(request: MenuRequest, kind: DeviceKind, search: Search | None = None) -> dict[int, PricedPlan]:
    """The fastest plan that fits for each allowed device count; counts without any plan are absent."""
    return {count: ranked[0] for count, ranked in ranked_plans(request, kind, search or Search()).items()}


def ranked_plans(request: MenuRequest, kind: DeviceKind, search: Search) -> dict[int, tuple[PricedPlan, ...]]:
    """The plans that fit, fastest first, for each allowed device count; counts without any plan are absent.

    One plan for each combination of stages, replicas, size, schedule and knobs that was worth timing.
    """
    counts = device_counts(request)
    if not request.profiles or not counts:
        return {}
    most = max(4, search.effort // len(counts))
    models = _models(request, kind, search, polish=8 * most)
    found = {count: _ranked(_shapes(request, search, models, count), most) for count in counts}
    return {count: ranked for count, ranked in found.items() if ranked}


# --- what is searched ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Model:
    """The model at one micro-batch size, with a cutter for each setting of the memory knobs and of slow ranks."""

    size: int
    costs: LayerCosts
    kind: DeviceKind
    knobs: tuple[Memory, ...]
    search: Search
    polish: int
    cutters: dict[tuple[Memory, tuple[float, ...]], Cutter] = field(default_factory=dict)

    def cutter(self, memory: Memory, slow: tuple[float, ...]) -> Cutter:
        if (memory, slow) not in self.cutters:
            search = self.search
            self.cutters[memory, slow] = Cutter(self.costs, self.kind, slow, memory, search.blocks, self.polish)
        return self.cutters[memory, slow]


@dataclass(frozen=True, slots=True)
class _Shape:
    """One way to divide the devices. shares: micro-batches of each pipeline."""

    model: _Model
    name: str
    ranks: int
    shares: tuple[int, ...]
    chunks: int

    @property
    def bound_s(self) -> float:
        """What no cut can beat: the longest pipeline's work on its busiest rank, the heaviest layer at least."""
        costs = self.model.costs
        return max(self.shares) * max(costs.whole_s / self.ranks, costs.heaviest_s)

    @property
    def guess_s(self) -> float:
        """The bound with the fill and drain of a balanced 1F1B, and the all-reduce."""
        costs, kind = self.model.costs, self.model.kind
        fill = costs.whole_s * (self.ranks - 1) / self.ranks / self.chunks
        return self.bound_s + fill + all_reduce_s(costs.all_parameter_bytes / self.ranks, len(self.shares), kind.link)

    def plans(self) -> tuple[float, list[ParallelPlan]]:
        """A closed-form estimate of the best plan, and the plans, best guess first, with the first knobs that fit."""
        stages, most = self.ranks * self.chunks, max(self.shares)
        depth = {"eager-1f1b": 2, "zb-h2": 2, "gpipe": most}.get(self.name, 1)
        stage_rank = stage_ranks(self.name, self.ranks, self.chunks)
        slow = tuple(map(max, zip(*self.pipelines, strict=True))) if self.model.search.slow else ()
        of_stage = tuple(slow[rank] for rank in stage_rank) if slow else ()
        for memory in self.model.knobs:
            cuts = self.model.cutter(memory, of_stage).candidates(stages, most, depth)
            if cuts:
                plans = [make_plan(cut, self.shares, self.model.size, self.name, self.chunks, memory) for cut in cuts]
                times = durations(self.model.costs, plans[0], self.model.kind, slow)
                seconds = step_estimate_s(self.name, times, stage_rank, most)
                return seconds + max(times.finish_s), plans
        return float("inf"), []

    @property
    def pipelines(self) -> list[tuple[float, ...]]:
        return _pipelines(self.model.search.slow, self.ranks, len(self.shares))


def _models(request: MenuRequest, kind: DeviceKind, search: Search, polish: int) -> list[_Model]:
    own = tuple(p for p in request.profiles if p.device_kind == kind.name) or request.profiles
    knobs = [Memory(search.precision)]
    if kind.memory_bytes is not None:
        knobs += [Memory(search.precision, recompute=True)] * search.recompute
        knobs += [Memory(search.precision, offload=True)] * search.offload
        knobs += [Memory(search.precision, recompute=True, offload=True)] * (search.recompute and search.offload)
    return [
        _Model(size, LayerCosts(profile_at(own, size)), kind, tuple(knobs), search, polish)
        for size in microbatch_sizes(request)
    ]


def _shapes(request: MenuRequest, search: Search, models: Sequence[_Model], count: int) -> list[_Shape]:
    """Every way to divide the devices, most promising first."""
    names = (request.schedule,) if request.schedule else search.schedules
    divisors = [r for r in range(1, count + 1) if count % r == 0]
    shapes: list[_Shape] = []
    for replicas in divisors if search.any_replicas else [request.replicas]:
        for model in models:
            microbatches, ranks = request.global_batch // model.size, count // replicas
            if count % replicas or microbatches < replicas:
                continue
            weights = [1 / max(slow) for slow in _pipelines(search.slow, ranks, replicas)]
            shares = split(microbatches, weights)
            for name in names:
                chunks = FAMILIES[name].chunks or 2
                stages = ranks * chunks
                free = not request.stages or stages in request.stages
                if free and stages <= len(model.costs) and (ranks > 1 or name == names[0]):
                    shapes.append(_Shape(model, name, ranks, shares, chunks))
    return sorted(shapes, key=lambda shape: shape.guess_s)


def _ranked(shapes: Sequence[_Shape], most: int) -> tuple[PricedPlan, ...]:
    """Cut the promising shapes, rank them by estimate, time `most` plans: all cuts of the best shape, then fewer."""
    cut: list[tuple[float, int, list[ParallelPlan]]] = []
    for index, shape in enumerate(shapes):
        known = sorted(estimate for estimate, _, _ in cut)[:RUNNERS_UP]
        if len(known) == RUNNERS_UP and (shape.bound_s > known[-1] or len(cut) >= 2 * most):
            continue
        estimate, plans = shape.plans()
        if plans:
            cut.append((estimate, index, plans))
    ranked: list[PricedPlan] = []
    left = most
    for _, index, plans in sorted(cut, key=lambda entry: entry[:2]):
        chosen = plans[: max(1, left // 2)]
        left -= len(chosen)
        model, slow = shapes[index].model, shapes[index].model.search.slow
        priced = [price(plan, model.costs, model.kind, slow) for plan in chosen]
        ranked += sorted((p for p in priced if fits(p, model.kind)), key=lambda p: p.order)[:1]
        if left <= 0 and ranked:
            break
    return tuple(sorted(ranked, key=lambda p: p.order))


def _pipelines(slow: Sequence[float], ranks: int, replicas: int) -> list[tuple[float, ...]]:
    """The slowdowns of each pipeline's ranks; devices beyond `slow` are as they should be."""
    padded = (*slow, *[1.0] * max(0, ranks * replicas - len(slow)))
    return [tuple(padded[j * ranks : (j + 1) * ranks]) for j in range(replicas)]


# --- plans and their price ----------------------------------------------------------------------------------


def split(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Shares in proportion to the weights by largest remainder, each at least 1."""
    spare = total - len(weights)
    exact = [spare * weight / sum(weights) for weight in weights]
    shares = [1 + int(part) for part in exact]
    order = sorted(range(len(weights)), key=lambda j: (int(exact[j]) - exact[j], j))
    for j in order[: total - sum(shares)]:
        shares[j] += 1
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


def price(plan: ParallelPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = ()) -> PricedPlan:
    """Time each pipeline of a plan and count its memory. costs: at the plan's micro-batch size."""
    replicas = len(plan.stages[0].ranks)
    ranks = plan.world_size // replicas
    chunks = len(plan.stages) // ranks
    peaks: list[float] = []
    versions: list[int] = []
    seconds = 0.0
    pipelines = zip(plan.stages[0].shares, _pipelines(slow, ranks, replicas), strict=True)
    for share, own in dict.fromkeys(pipelines):
        order = compiled(plan.schedule, ranks, share, chunks)
        times = durations(costs, plan, kind, own if slow else ())
        seconds = max(seconds, step_time_s(order, times) + kind.step_s)
        held = [order.footprint.peak_activations[rank] for rank in order.schedule.stage_rank]
        peaks = [max(pair) for pair in zip(peaks or held, held, strict=True)]
        versions = [order.footprint.weight_versions[rank] for rank in order.schedule.stage_rank]
    return PricedPlan(plan, seconds, plan_memory_bytes(costs, plan, peaks, versions))


def fits(priced: PricedPlan, kind: DeviceKind) -> bool:
    """Whether every rank holds all of its stages."""
    if kind.memory_bytes is None:
        return True
    held: dict[int, int] = {}
    for stage, size in zip(priced.plan.stages, priced.memory_bytes, strict=True):
        held[stage.ranks[0]] = held.get(stage.ranks[0], 0) + size
    return max(held.values()) <= kind.memory_bytes
