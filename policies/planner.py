"""The joint search for one job: stages, replicas, micro-batches, schedule and memory knobs for every device count.

For each way to divide the devices the partition gives good cuts; closed forms rank them; event timing decides.
"""

from collections.abc import Sequence
from dataclasses import replace

from policies.cost import LayerCosts, Memory, profile_at
from policies.ir.plan import ParallelPlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind
from policies.pricing import PricedPlan, fits, pipelines_of, price, split
from policies.schedules.catalogue import FAMILIES
from policies.shapes import Even, Model, Search, Uneven

RUNNERS_UP = 4
"""Plans that a ranking has at least, where there are so many."""


MOST_UNEVEN = 8
"""Devices up to which stages may have different numbers of replicas."""


MOST_MICROBATCHES = 4096
"""Of a step. Timing a plan takes as long as it has instructions, and one job must not hold up the pass for all."""

SAVING = ((Memory(recompute=True), Memory(offload=True)), (Memory(recompute=True, offload=True),))
"""What is tried, row by row, where nothing fits with all state and activations on the device."""


def device_counts(request: MenuRequest) -> tuple[int, ...]:
    """The sizes that the job allows, ascending."""
    allowed = request.allowed_devices or range(request.min_devices, request.max_devices + 1)
    return tuple(sorted({n for n in allowed if request.min_devices <= n <= request.max_devices}))


def divisible_counts(request: MenuRequest) -> tuple[int, ...]:
    """The allowed sizes that can be divided into stages and replicas at all. Quick: no plan is cut, and memory is not
    asked for. Of a menu that was measured its sizes."""
    counts = device_counts(request)
    if request.measured is not None:
        measured = {row.devices for row in request.measured.rows}
        return tuple(count for count in counts if count in measured)
    if not request.profiles:
        return counts
    search = Search()
    models = _models(request, DeviceKind(request.profiles[0].device_kind), search, polish=0)
    return tuple(count for count in counts if _shapes(request, search, models, count))


def microbatch_sizes(request: MenuRequest) -> tuple[int, ...]:
    """Sizes in samples that divide the global batch into at most MOST_MICROBATCHES and that the request allows.

    Free sizes stay within what was measured: between the smallest and the largest profile.
    """
    batch = request.global_batch
    if request.microbatch_size is not None or request.microbatches is not None:
        size = request.microbatch_size or batch // (request.microbatches or 1)
        count = request.microbatches or (batch // size if size else 0)
        return (size,) if size > 0 and size * count == batch and count <= MOST_MICROBATCHES else ()
    measured = sorted(profile.microbatch_size for profile in request.profiles)
    least = -(-batch // MOST_MICROBATCHES)
    sizes = tuple(n for n in range(max(least, measured[0]), measured[-1] + 1) if batch % n == 0)
    return sizes or tuple(n for n in range(least, measured[0]) if batch % n == 0)


def best_plans(request: MenuRequest, kind: DeviceKind, search: Search | None = None) -> dict[int, PricedPlan]:
    """The fastest plan that fits for each allowed device count; counts without any plan are absent."""
    return {count: ranked[0] for count, ranked in ranked_plans(request, kind, search or Search()).items()}


def frugal_plans(request: MenuRequest, kind: DeviceKind) -> dict[int, PricedPlan]:
    """As `best_plans`; for counts that would have none the fastest plan of the first row of SAVING that has one."""
    return {count: ranked[0] for count, ranked in ranked_plans(request, kind, Search(), SAVING).items()}


def ranked_plans(
    request: MenuRequest, kind: DeviceKind, search: Search, saving: Sequence[Sequence[Memory]] = ()
) -> dict[int, tuple[PricedPlan, ...]]:
    """The plans that fit, fastest first, for each allowed device count; counts without any plan are absent.

    One plan for each combination of stages, replicas, size, schedule and knobs that was worth timing. saving: rows of
    knobs; one is searched for counts for which the search and the rows before it have found nothing.
    """
    counts = device_counts(request)
    if not request.profiles or not counts:
        return {}
    most = max(4, search.effort // len(counts))
    models = _models(request, kind, search, polish=8 * most)
    rows = saving if kind.memory_bytes is not None else ()
    found = {count: _first(_shapes(request, search, models, count), rows, most) for count in counts}
    return {count: ranked for count, ranked in found.items() if ranked}


def _first(
    shapes: Sequence[Even | Uneven], saving: Sequence[Sequence[Memory]], most: int
) -> tuple[PricedPlan, ...]:
    """What the shapes give as they are; where nothing fits, with the first row of knobs with which something does."""
    ranked = _ranked(shapes, most)
    for row in saving:
        if not ranked:
            ranked = _ranked([replace(s, model=s.model.saving(memory)) for s in shapes for memory in row], most)
    return ranked


def _models(request: MenuRequest, kind: DeviceKind, search: Search, polish: int) -> list[Model]:
    own = tuple(p for p in request.profiles if p.device_kind == kind.name) or request.profiles
    knobs = [Memory(search.precision)]
    if kind.memory_bytes is not None:
        knobs += [Memory(search.precision, recompute=True)] * search.recompute
        knobs += [Memory(search.precision, offload=True)] * search.offload
        knobs += [Memory(search.precision, recompute=True, offload=True)] * (search.recompute and search.offload)
    return [
        Model(size, LayerCosts(profile_at(own, size)), kind, tuple(knobs), search, polish)
        for size in microbatch_sizes(request)
    ]


def _shapes(request: MenuRequest, search: Search, models: Sequence[Model], count: int) -> list[Even | Uneven]:
    """Every way to divide the devices, most promising first."""
    names = (request.schedule,) if request.schedule else search.schedules
    divisors = [r for r in range(1, count + 1) if count % r == 0]
    shapes: list[Even | Uneven] = []
    for replicas in divisors if search.any_replicas else [request.replicas]:
        for model in models:
            microbatches, ranks = request.global_batch // model.size, count // replicas
            if count % replicas or microbatches < replicas:
                continue
            weights = [1 / max(slow) for slow in pipelines_of(search.slow, ranks, replicas)]
            shares = split(microbatches, weights)
            for name in names:
                chunks = FAMILIES[name].chunks or 2
                stages = ranks * chunks
                free = not request.stages or stages in request.stages
                if free and stages <= len(model.costs) and (ranks > 1 or name in {names[0], "1f1b"}):
                    shapes.append(Even(model, name, ranks, shares, chunks))
    if search.any_replicas and not search.slow and not request.stages and 2 < count <= MOST_UNEVEN:
        dealt = [name for name in names if name in {"1f1b", "eager-1f1b"}]
        shapes += [Uneven(model, name, count, request.global_batch // model.size) for model in models for name in dealt]
    return sorted(shapes, key=lambda shape: shape.guess_s)


def _ranked(shapes: Sequence[Even | Uneven], most: int) -> tuple[PricedPlan, ...]:
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
