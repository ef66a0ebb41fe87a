"""The joint search for one job: stages, replicas, micro-batches, schedule and recompute for every device count.

For each way to divide the devices the partition gives good cuts; closed forms rank them; event timing decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from policies.cost import LayerCosts, Memory, durations, plan_memory_bytes, profile_at
from policies.estimate import step_estimate_s
from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind
from policies.partition.blocks import Bounds
from policies.partition.cuts import Cutter
from policies.schedules.catalogue import FAMILIES, stage_ranks
from policies.timing import compiled, step_time_s


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
    blocks: int = 512


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan with what it is predicted to cost. memory_bytes: per stage. time_to_accuracy_s: where it was asked for."""

    plan: ParallelPlan
    step_time_s: float
    memory_bytes: tuple[int, ...]
    time_to_accuracy_s: float | None = None

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


def best_plans(request: MenuRequest, kind: DeviceKind, search: Search | None = None) -> dict[int, PricedPlan]:
    """The fastest plan that fits for each allowed device count; counts without any plan are absent."""
    return {count: ranked[0] for count, ranked in ranked_plans(request, kind, search or Search()).items()}


def ranked_plans(request: MenuRequest, kind: DeviceKind, search: Search) -> dict[int, tuple[PricedPlan, ...]]:
    """The plans that fit, fastest first, for each allowed device count; counts without any plan are absent.

    One plan for each combination of stages, replicas, size, schedule and knobs that was worth timing.
    """
    counts = device_counts(request)
    found: dict[int, tuple[PricedPlan, ...]] = {}
    if not request.profiles or not counts:
        return found
    models = _models(request, kind, search)
    most = max(4, search.effort // len(counts))
    for count in counts:
        shapes = sorted(_shapes(request, search, models, count), key=lambda shape: shape.estimate_s)
        ranked: list[PricedPlan] = []
        timed = 0
        for shape in shapes:
            if timed >= most:
                break
            cuts = shape.cuts[: most - timed]
            priced = [price(shape.plan(bounds), shape.model.costs, kind, search.slow) for bounds in cuts]
            timed += len(cuts)
            fitting = [p for p in priced if fits(p, kind)]
            if fitting:
                ranked.append(min(fitting, key=lambda p: p.order))
        if ranked:
            found[count] = tuple(sorted(ranked, key=lambda p: p.order))
    return found


# --- what is searched ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Model:
    """The model at one micro-batch size and one setting of the memory knobs."""

    size: int
    costs: LayerCosts
    kind: DeviceKind
    memory: Memory
    search: Search
    cutters: dict[tuple[float, ...], Cutter] = field(default_factory=dict)

    def cutter(self, slow: tuple[float, ...]) -> Cutter:
        if slow not in self.cutters:
            self.cutters[slow] = Cutter(self.costs, self.kind, slow, self.memory, self.search.blocks)
        return self.cutters[slow]


@dataclass(frozen=True, slots=True)
class _Shape:
    """One way to divide the devices, with its cuts, best guess first, and a closed-form estimate of the best one."""

    model: _Model
    name: str
    shares: tuple[int, ...]
    cuts: tuple[Bounds, ...]
    chunks: int
    estimate_s: float

    def plan(self, bounds: Bounds) -> ParallelPlan:
        return make_plan(bounds, self.shares, self.model.size, self.name, self.chunks, self.model.memory)


def _models(request: MenuRequest, kind: DeviceKind, search: Search) -> list[_Model]:
    own = tuple(p for p in request.profiles if p.device_kind == kind.name) or request.profiles
    knobs = [Memory(search.precision)]
    if kind.memory_bytes is not None:
        knobs += [Memory(search.precision, recompute=True)] * search.recompute
        knobs += [Memory(search.precision, offload=True)] * search.offload
        knobs += [Memory(search.precision, recompute=True, offload=True)] * (search.recompute and search.offload)
    costs = {size: LayerCosts(profile_at(own, size)) for size in microbatch_sizes(request)}
    return [_Model(size, costs[size], kind, memory, search) for size in costs for memory in knobs]


def _shapes(request: MenuRequest, search: Search, models: Sequence[_Model], count: int) -> Iterator[_Shape]:
    names = (request.schedule,) if request.schedule else search.schedules
    divisors = [r for r in range(1, count + 1) if count % r == 0]
    for replicas in divisors if search.any_replicas else [request.replicas]:
        ranks = count // replicas
        for model in models:
            microbatches = request.global_batch // model.size
            if count % replicas or microbatches < replicas:
                continue
            for name in names:
                chunks = FAMILIES[name].chunks or 2
                stages = ranks * chunks
                free = not request.stages or stages in request.stages
                if free and stages <= len(model.costs) and (ranks > 1 or name == names[0]):
                    shape = _shape(model, name, ranks, replicas, microbatches, chunks)
                    if shape is not None:
                        yield shape


def _shape(model: _Model, name: str, ranks: int, replicas: int, microbatches: int, chunks: int) -> _Shape | None:
    stage_rank = stage_ranks(name, ranks, chunks)
    pipelines = _pipelines(model.search.slow, ranks, replicas)
    typical = tuple(max(slow) for slow in zip(*pipelines, strict=True)) if model.search.slow else ()
    cutter = model.cutter(tuple(typical[rank] for rank in stage_rank) if typical else ())
    depth = {"eager-1f1b": 2, "zb-h2": 2, "gpipe": microbatches}.get(name, 1)
    most = -(-microbatches // replicas)
    cuts = cutter.candidates(ranks * chunks, most, depth)
    if not cuts:
        return None
    shares = split(microbatches, [1 / max(slow) for slow in pipelines] if model.search.slow else [1.0] * replicas)
    plan = make_plan(cuts[0], shares, model.size, name, chunks, model.memory)
    times = durations(model.costs, plan, model.kind, typical)
    seconds = step_estimate_s(name, times, stage_rank, max(shares)) + max(times.finish_s)
    return _Shape(model, name, shares, tuple(cuts), chunks, seconds)


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
