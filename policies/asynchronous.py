"""Plans without a flush, for jobs that allow stale gradients: the fewest seconds to the target, T(S) x W(S)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from policies.convergence import Convergence, delays
from policies.cost import LayerCosts, Memory, durations, plan_memory_bytes
from policies.model.device import DeviceKind
from policies.partition.blocks import Bounds
from policies.partition.cuts import Cutter
from policies.partition.replicated import replicated_period_s
from policies.pricing import PricedPlan, fits, uneven_plan

PATIENCE = 1
"""Stage counts that may be worse before the search over them stops: the product T(S) W(S) has one valley."""


def with_target(ranked: Sequence[PricedPlan], convergence: Convergence) -> list[PricedPlan]:
    """Synchronous plans with their seconds to the target: T(1) steps."""
    steps = convergence.iterations()
    return [replace(priced, time_to_accuracy_s=steps * priced.step_time_s) for priced in ranked]


def asynchronous_plans(
    costs: LayerCosts, kind: DeviceKind, devices: int, microbatches: int, size: int, convergence: Convergence
) -> list[PricedPlan]:
    """The best plan of each asynchronous schedule; a step is `microbatches` periods W.

    costs: at micro-batch size `size`. Stage counts are tried upwards until the product rises.
    """
    found: list[PricedPlan] = []
    for schedule in ("async-1f1b", "2bw"):
        best: PricedPlan | None = None
        worse = 0
        for priced in _by_stages(costs, kind, devices, microbatches, size, convergence, schedule):
            if best is None or (priced.time_to_accuracy_s or 0.0) < (best.time_to_accuracy_s or 0.0):
                best, worse = priced, 0
            else:
                worse += 1
            if worse > PATIENCE:
                break
        if best is not None:
            found.append(best)
    return found


def _by_stages(
    costs: LayerCosts,
    kind: DeviceKind,
    devices: int,
    microbatches: int,
    size: int,
    convergence: Convergence,
    schedule: str,
) -> Iterator[PricedPlan]:
    cutter = Cutter(costs, kind)
    for bounds, replicas in _divisions(cutter, devices, microbatches):
        plan = uneven_plan(bounds, replicas, microbatches, size, schedule, Memory())
        times = durations(costs, plan, kind)
        extra = [cost * count / microbatches for cost, count in zip(times.finish_s, replicas, strict=True)]
        own = [whole + more for whole, more in zip(times.compute_s, extra, strict=True)]
        step_s = microbatches * replicated_period_s(own, times.transfer_s, replicas)
        alive = [-(-sum(replicas[stage:]) // replicas[stage]) for stage in range(len(replicas))]
        versions = alive if schedule == "async-1f1b" else [2] * len(alive)
        memory = plan_memory_bytes(costs, plan, alive, versions)
        steps = convergence.iterations(convergence.staleness(bounds, delays(schedule, alive)))
        priced = PricedPlan(plan, step_s, memory, steps * step_s)
        if fits(priced, kind):
            yield priced


def _divisions(cutter: Cutter, devices: int, microbatches: int) -> Iterator[tuple[Bounds, tuple[int, ...]]]:
    """For few devices any replicas a stage; for many the divisors of their number. Ascending stages."""
    if devices <= 8:
        yield from cutter.replicated(devices, microbatches)
        return
    for stages in range(1, devices + 1):
        if devices % stages == 0 and (first := cutter.programme("loop", stages)) is not None:
            yield cutter.exact(first), (devices // stages,) * stages
