"""What is worth saying about a priced plan: its bubble, why it won, what a bigger batch would change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from policies.bubbles import Idle, bubble, split_idle
from policies.cost import Durations, LayerCosts, durations
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind
from policies.partition.cuts import Cutter, uniform
from policies.pricing import PricedPlan, price
from policies.schedules.assign import schedule_of
from policies.schedules.catalogue import FAMILIES
from policies.timing import Compiled, compiled, index_schedule, step_time_s, timeline

TARGET = 0.10
"""The bubble that a good plan stays below."""


@dataclass(frozen=True, slots=True)
class Report:
    """bubble: idle share of the ranks' time in the longest pipeline. idle: seconds of a rank by cause, on average."""

    bubble: float
    idle: Idle


def pipeline_of(
    plan: ParallelPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = (), times: int = 1
) -> tuple[Compiled, Durations]:
    """The plan's longest pipeline, ready for timing. times: micro-batches as a multiple of the plan's."""
    if any(stage.shares != plan.stages[0].shares for stage in plan.stages):
        stages = tuple(replace(s, shares=tuple(share * times for share in s.shares)) for s in plan.stages)
        whole = replace(plan, stages=stages, microbatches=plan.microbatches * times)
        padded = (*slow, *[1.0] * plan.world_size)[: plan.world_size] if slow else ()
        return index_schedule(schedule_of(whole)), durations(costs, plan, kind, padded)
    replicas = len(plan.stages[0].ranks)
    ranks = plan.world_size // replicas
    longest = max(range(replicas), key=lambda j: plan.stages[0].shares[j])
    own = tuple((*slow, *[1.0] * plan.world_size)[longest * ranks : (longest + 1) * ranks]) if slow else ()
    share = plan.stages[0].shares[longest] * times
    order = compiled(plan.schedule, ranks, share, len(plan.stages) // ranks)
    return order, durations(costs, plan, kind, own)


def report(priced: PricedPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = ()) -> Report:
    """Look closer at a plan. costs: at its micro-batch size."""
    if FAMILIES[priced.plan.schedule].asynchronous:
        return _steady(priced, costs)
    order, times = pipeline_of(priced.plan, costs, kind, slow)
    run = timeline(order, times)
    idle = split_idle(order, times, run)
    mean = Idle(
        sum(part.fill_drain for part in idle) / len(idle),
        sum(part.exposed_communication for part in idle) / len(idle),
        sum(part.imbalance for part in idle) / len(idle),
        sum(part.stall for part in idle) / len(idle),
    )
    return Report(bubble(run), mean)


def bubble_of_twice(priced: PricedPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = ()) -> float:
    """The bubble with twice the global batch, other things equal."""
    if FAMILIES[priced.plan.schedule].asynchronous:
        return _steady(priced, costs).bubble
    return bubble(timeline(*pipeline_of(priced.plan, costs, kind, slow, times=2)))


def _steady(priced: PricedPlan, costs: LayerCosts) -> Report:
    """Without a flush nothing fills or drains: what is idle waits for the slowest cycle."""
    idle_s = priced.step_time_s - costs.whole_s * priced.plan.microbatches / priced.plan.world_size
    share = idle_s / priced.step_time_s
    return Report(share, Idle(0.0, 0.0, idle_s, 0.0))


def compare(priced: PricedPlan, costs: LayerCosts, kind: DeviceKind, slow: Sequence[float] = ()) -> dict[str, float]:
    """Seconds a step of the same plan cut in other ways: equal layer counts, balanced computing, balanced memory, and
    computing overlapped with transfers. Nothing for one stage, or stages that differ in replicas."""
    plan = priced.plan
    stages = len(plan.stages)
    if stages == 1 or any(stage.shares != plan.stages[0].shares for stage in plan.stages):
        return {}
    cutter = Cutter(costs, replace(kind, memory_bytes=None))
    cuts = {"uniform": uniform(len(costs), stages)}
    for name in ("compute", "memory", "overlapped"):
        found = cutter.programme(name, stages)
        if found is not None:
            cuts[name] = found
    steps: dict[str, float] = {}
    for name, bounds in cuts.items():
        moved = [replace(s, first=a, stop=b) for s, (a, b) in zip(plan.stages, pairwise(bounds), strict=True)]
        steps[name] = price(replace(plan, stages=tuple(moved)), costs, kind, slow).step_time_s
    return steps


def why(ranked: Sequence[PricedPlan]) -> str:
    """Why the first of several plans won, in one sentence."""
    best, *others = ranked
    if not others:
        return "the only combination of stages, replicas and schedule that fits"
    second = others[0]
    if best.time_to_accuracy_s is not None and second.time_to_accuracy_s is not None:
        slower = second.time_to_accuracy_s / best.time_to_accuracy_s - 1
    else:
        slower = second.step_time_s / best.step_time_s - 1
    margin = f"{slower:.1%} slower" if slower >= 5e-4 else "as fast, but larger"
    return f"fastest of {len(ranked)} combinations timed; the next, {second.plan.name}, is {margin}"


def slack_s(order: Compiled, times: Durations, stage: int) -> float:
    """How much longer a stage may compute, a micro-batch, before the step grows; by timing, to 1e-6 of the step."""
    whole = step_time_s(order, times)

    def grows(extra: float) -> bool:
        return step_time_s(order, _loaded(times, stage, extra)) > whole * (1 + 1e-9)

    low, high = 0.0, whole
    while high - low > whole * 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if grows(middle) else (middle, high)
    return low


def period_slack_s(times: Durations, stage: int) -> float:
    """The same for the period W of 1F1B in steady state, in closed form: the least that an interval of stages around
    this one lacks to W times its tokens."""
    own, transfer = times.compute_s, times.transfer_s
    totals = {
        (first, last): sum(own[first : last + 1]) + 2 * sum(transfer[first:last])
        for first in range(len(own))
        for last in range(first, len(own))
    }
    period = max(total / (last - first + 1) for (first, last), total in totals.items())
    around = [(i, j) for i, j in totals if i <= stage <= j]
    return max(0.0, min(period * (j - i + 1) - totals[i, j] for i, j in around))


def _loaded(times: Durations, stage: int, extra: float) -> Durations:
    """A stage that computes `extra` seconds longer, its forward and backward in proportion."""
    factor = 1 + extra / times.compute_s[stage]

    def scaled(values: tuple[float, ...]) -> tuple[float, ...]:
        return (*values[:stage], values[stage] * factor, *values[stage + 1 :])

    return Durations(
        scaled(times.forward_s),
        scaled(times.backward_input_s),
        scaled(times.backward_weight_s),
        times.transfer_s,
        times.finish_s,
        times.transfers_block,
        times.slow,
    )
