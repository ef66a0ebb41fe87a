"""How long a step of a plan takes as things are, and what it takes to get there from another plan."""

import math
from dataclasses import replace

from policies.cost import Durations, Memory, durations
from policies.ir.plan import ParallelPlan
from policies.pricing import price
from policies.schedules.assign import schedule_of
from policies.timing import Compiled, compiled, index_schedule, step_time_s
from worker.adapt.situation import Ground, Situation, neighbours, pair_of

LEAST_GAIN = 0.03
"""A change that promises less than this share of a step is not worth its risk; the way home has none."""


def step_s(plan: ParallelPlan, ground: Ground, situation: Situation) -> float:
    """Seconds from the first forward to the last backward, by event timing of every pipeline.

    What comes after it, such as the gradients' all-reduce, is the same for all cuts; see `Terms.overhead_s`.
    """
    if any(stage.shares != plan.stages[0].shares for stage in plan.stages):
        return _timed(index_schedule(schedule_of(plan)), _uneven(plan, ground, situation))
    slowest = 0.0
    for replica, share in enumerate(plan.stages[0].shares):
        holders = [stage.ranks[replica] for stage in plan.stages]
        ranks = list(dict.fromkeys(holders))
        order = compiled(plan.schedule, len(ranks), share, len(holders) // len(ranks))
        times = durations(ground.costs, plan, ground.kind, [situation.slow[rank] for rank in ranks])
        crossed = tuple(
            ground.transfer_s(pair_of(a, b), ground.costs.layers[stage.stop - 1].output_bytes, situation)
            for stage, a, b in zip(plan.stages, holders, holders[1:], strict=False)
        )
        slowest = max(slowest, _timed(order, _loaded(replace(times, transfer_s=crossed), situation)))
    return slowest


def _timed(order: Compiled, times: Durations) -> float:
    return step_time_s(order, replace(times, finish_s=()))


def _uneven(plan: ParallelPlan, ground: Ground, situation: Situation) -> Durations:
    """Stages that deal their micro-batches out: the slowest pair of ranks of a boundary counts for all."""
    times = durations(ground.costs, plan, ground.kind, situation.slow)
    crossed = [0.0] * (len(plan.stages) - 1)
    for boundary, pair in neighbours(plan):
        size = ground.costs.layers[plan.stages[boundary].stop - 1].output_bytes
        crossed[boundary] = max(crossed[boundary], ground.transfer_s(pair, size, situation))
    return _loaded(replace(times, transfer_s=tuple(crossed)), situation)


def _loaded(times: Durations, situation: Situation) -> Durations:
    """The first stage fetches its inputs before it computes."""
    first, *others = times.forward_s
    return replace(times, forward_s=(first + situation.load_s, *others))


def moved_bytes(old: ParallelPlan, new: ParallelPlan, ground: Ground) -> float:
    """Parameters and optimizer state that some rank has to receive."""
    per_byte = Memory(new.precision).state_per_parameter_byte - 1  # gradients do not travel
    had = {(layer, rank) for stage in old.stages for layer in stage.layers for rank in stage.ranks}
    parameters = ground.costs.layers
    return per_byte * sum(
        parameters[layer].parameter_bytes
        for stage in new.stages
        for layer in stage.layers
        for rank in stage.ranks
        if (layer, rank) not in had
    )


def held_bytes(plan: ParallelPlan, ground: Ground) -> tuple[float, ...]:
    """What each rank holds, as the planner counts it."""
    held = [0.0] * plan.world_size
    for stage, size in zip(plan.stages, price(plan, ground.costs, ground.kind).memory_bytes, strict=True):
        for rank in stage.ranks:
            held[rank] += size
    return tuple(held)


def pays(
    old_s: float,
    new_s: float,
    cost_s: float,
    *,
    left_s: float,
    horizon_s: float,
    changes_per_s: float,
    least_gain: float = LEAST_GAIN,
) -> bool:
    """Whether a faster step pays for the change (FORMULAS B5.6).

    A job that ends: what is left of it, at most the horizon, must get shorter by more than the change costs. An
    environment that changes at a rate: `ln(g_new / g_old) > rate x cost`. left_s: at the old speed.
    """
    if new_s >= old_s * (1 - least_gain):
        return False
    return saved_s(old_s, new_s, min(left_s, horizon_s)) > cost_s and math.log(old_s / new_s) > changes_per_s * cost_s


def saved_s(old_s: float, new_s: float, over_s: float) -> float:
    """Seconds that the faster step saves of so many at the old speed."""
    return over_s * (1 - new_s / old_s)
