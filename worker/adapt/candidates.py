"""Plans near the running one: boundaries moved, blocks passed along, micro-batches shared out anew among replicas."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from policies.ir.plan import ParallelPlan
from policies.partition.blocks import Bounds
from policies.partition.cuts import Cutter
from policies.partition.repartition import improve
from policies.pricing import split
from worker.adapt.pricing import LEAST_GAIN, held_bytes, moved_bytes, pays, saved_s, step_s
from worker.adapt.situation import Ground, Situation

EVALUATIONS = 1500


@dataclass(frozen=True)
class Candidate:
    """step_s: predicted, overhead and all. cost_s: of getting there, in seconds of training."""

    plan: ParallelPlan
    step_s: float
    cost_s: float


@dataclass(frozen=True)
class Terms:
    """What a change must pay. pause_s: of a change that moves nothing. bandwidth_bytes_per_s: at which state moves.

    overhead_s: of a step, beyond what event timing knows. left_s: of the job at its present speed. changes_per_s: how
    often the situation changes. allowed: whether a plan may be taken at all, such as for its memory.
    """

    pause_s: float
    bandwidth_bytes_per_s: float
    left_s: float
    horizon_s: float
    overhead_s: float = 0.0
    changes_per_s: float = 0.0
    allowed: Callable[[ParallelPlan], bool] = lambda plan: True


def best_change(
    running: ParallelPlan, home: ParallelPlan, ground: Ground, situation: Situation, terms: Terms
) -> Candidate | None:
    """The plan that saves most within the horizon and pays for the way there; None where none does.

    Undisturbed there is one candidate: home, the plan that the job was given.
    """
    now_s = terms.overhead_s + step_s(running, ground, situation)
    plans = [home] if situation.calm else near(running, home, ground, situation, terms.allowed)
    over_s = min(terms.left_s, terms.horizon_s)
    best: Candidate | None = None
    for plan in plans:
        if plan == running or not terms.allowed(plan):
            continue
        cost_s = terms.pause_s + moved_bytes(running, plan, ground) / terms.bandwidth_bytes_per_s
        found = Candidate(plan, terms.overhead_s + step_s(plan, ground, situation), cost_s)
        if not pays(
            now_s, found.step_s, cost_s, left_s=terms.left_s, horizon_s=terms.horizon_s,
            changes_per_s=terms.changes_per_s, least_gain=0.0 if situation.calm else LEAST_GAIN,
        ):  # fmt: skip
            continue
        if best is None or _worth(now_s, found, over_s) > _worth(now_s, best, over_s):
            best = found
    return best


def relief(
    running: ParallelPlan, home: ParallelPlan, ground: Ground, situation: Situation, terms: Terms, rank: int,
    room_bytes: Sequence[float],
) -> Candidate | None:  # fmt: skip
    """The fastest plan in which the rank holds less, and no other more than it has room for: it need not pay.

    room_bytes: by rank, infinite where unknown.
    """
    before, fits = held_bytes(running, ground), fitting(running, ground, room_bytes)

    def allowed(plan: ParallelPlan) -> bool:
        return terms.allowed(plan) and held_bytes(plan, ground)[rank] < before[rank] and fits(plan)

    def lighter(bounds: Bounds) -> tuple[float, ...]:
        plan = recut(running, bounds)
        return (0.0 if allowed(plan) else held_bytes(plan, ground)[rank], step_s(plan, ground, situation))

    first = recut(running, improve(bounds_of(running), _places(ground), lighter, EVALUATIONS // 10))
    plans = [plan for plan in (first, *near(first, home, ground, situation, allowed)) if allowed(plan)]
    if not plans:
        return None
    best = min(plans, key=lambda plan: step_s(plan, ground, situation))
    cost_s = terms.pause_s + moved_bytes(running, best, ground) / terms.bandwidth_bytes_per_s
    return Candidate(best, terms.overhead_s + step_s(best, ground, situation), cost_s)


def fitting(running: ParallelPlan, ground: Ground, room_bytes: Sequence[float]) -> Callable[[ParallelPlan], bool]:
    """Whether no rank would hold more than now and its room; one that has none, or less, may stay as it is.

    room_bytes: by rank, infinite where unknown.
    """
    if all(math.isinf(room) for room in room_bytes):
        return lambda plan: True
    most = [held + max(0.0, room) for held, room in zip(held_bytes(running, ground), room_bytes, strict=True)]

    def fits(plan: ParallelPlan) -> bool:
        return all(held <= limit for held, limit in zip(held_bytes(plan, ground), most, strict=True))

    return fits


def _worth(now_s: float, candidate: Candidate, over_s: float) -> float:
    return saved_s(now_s, candidate.step_s, over_s) - candidate.cost_s


def near(
    running: ParallelPlan,
    home: ParallelPlan,
    ground: Ground,
    situation: Situation,
    allowed: Callable[[ParallelPlan], bool],
) -> list[ParallelPlan]:
    """Plans worth a look, each once: new shares alone first, since they move nothing."""
    places = _places(ground)

    def objective(bounds: Bounds) -> tuple[float, ...]:
        plan = shared_out(recut(running, bounds), ground, situation)
        if not allowed(plan):
            return (float("inf"), 0.0)
        return step_s(plan, ground, situation), moved_bytes(running, plan, ground)

    starts = [bounds_of(running), *_cuts(running, ground, situation)]
    cuts = dict.fromkeys([*starts, *(improve(start, places, objective, EVALUATIONS) for start in starts[:2])])
    plans = [shared_out(running, ground, situation), home]
    plans += [shared_out(recut(running, bounds), ground, situation) for bounds in cuts]
    return list(dict.fromkeys(plans))


def _places(ground: Ground) -> tuple[int, ...]:
    """Layers in front of which a cut may be, with both ends."""
    count = len(ground.costs)
    return (0, *(i + 1 for i in range(count - 1) if ground.costs.may_cut_after[i]), count)


def _cuts(running: ParallelPlan, ground: Ground, situation: Situation) -> list[Bounds]:
    """What dynamic programming finds for stages that are slowed by their slowest replica."""
    slow = [max(situation.slow[rank] for rank in stage.ranks) for stage in running.stages]
    alive = max(max(stage.shares) for stage in running.stages)
    return Cutter(ground.costs, ground.kind, slow).candidates(len(running.stages), alive)


def bounds_of(plan: ParallelPlan) -> Bounds:
    return (*(stage.first for stage in plan.stages), plan.layer_count)


def recut(plan: ParallelPlan, bounds: Bounds) -> ParallelPlan:
    """The same stages over other layers."""
    stages = [replace(s, first=a, stop=b) for s, (a, b) in zip(plan.stages, pairwise(bounds), strict=True)]
    return replace(plan, stages=tuple(stages))


def shared_out(plan: ParallelPlan, ground: Ground, situation: Situation) -> ParallelPlan:
    """Micro-batches shared out by the speed of each pipeline's slowest stage (FORMULAS B1.5); where stages have
    replicas of their own, by the speed of each."""
    if plan.replicas == 1:
        return plan
    if len({len(stage.ranks) for stage in plan.stages}) == 1 and _one_share(plan):
        costs = [ground.costs.stage(stage.first, stage.stop).compute_s for stage in plan.stages]
        paces = [
            1 / max(own * situation.slow[stage.ranks[j]] for own, stage in zip(costs, plan.stages, strict=True))
            for j in range(plan.replicas)
        ]
        shares = split(plan.microbatches, paces)
        return replace(plan, stages=tuple(replace(stage, shares=shares) for stage in plan.stages))
    stages = [
        replace(stage, shares=split(plan.microbatches, [1 / situation.slow[rank] for rank in stage.ranks]))
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))


def _one_share(plan: ParallelPlan) -> bool:
    return all(stage.shares == plan.stages[0].shares for stage in plan.stages)
