"""Schedule + durations -> Timeline, event by event: each rank runs its next action as soon as its inputs are there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from policies.cost import Durations
from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule
from policies.ir.timeline import Span, Timeline
from policies.schedules.catalogue import make_schedule
from policies.schedules.dependencies import needs, result
from policies.schedules.validate import Footprint, footprint, validate, walk


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schedule made ready to be priced many times.

    steps: every action in an order in which it can run: (rank, action, inputs), each input the index of the step that
    makes it and the boundary it crosses, or -1 where it stays on the rank.
    """

    schedule: Schedule
    steps: tuple[tuple[int, Action, tuple[tuple[int, int], ...]], ...]
    footprint: Footprint


def compile_schedule(schedule: Schedule) -> Compiled:
    """Check and index a schedule.

    Raises:
        InvalidSchedule: as `validate`; a deadlock names the cycle of ranks that wait for each other.
    """
    validate(schedule)
    return _index(schedule)


def _index(schedule: Schedule) -> Compiled:
    made: dict[tuple[str, int, int, int], int] = {}
    steps: list[tuple[int, Action, tuple[tuple[int, int], ...]]] = []
    for rank, action in walk(schedule.orders, schedule.stages, schedule.slices):
        inputs = []
        for wanted in needs(action, schedule.stages, schedule.slices):
            source = wanted[1]
            crosses = source != action.stage and schedule.stage_rank[source] != rank
            inputs.append((made[wanted], min(source, action.stage) if crosses else -1))
        done = result(action)
        if done is not None:
            made[done] = len(steps)
        steps.append((rank, action, tuple(inputs)))
    return Compiled(schedule, tuple(steps), footprint(schedule))


@lru_cache(maxsize=512)
def compiled(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Compiled:
    """A named schedule, compiled once. The generators are tested to be valid, so this is not checked again."""
    return _index(make_schedule(name, ranks, microbatches, chunks=chunks))


def _times(order: Compiled, durations: Durations) -> tuple[list[float], list[float], list[float]]:
    """Start and end of each step, and when each rank is done with its last one."""
    slices = order.schedule.slices
    tables = {
        Kind.FORWARD: durations.forward_s,
        Kind.BACKWARD: tuple(map(sum, zip(durations.backward_input_s, durations.backward_weight_s, strict=True))),
        Kind.BACKWARD_INPUT: durations.backward_input_s,
        Kind.BACKWARD_WEIGHT: durations.backward_weight_s,
    }
    slow = [durations.slow[rank] if durations.slow else 1.0 for rank in order.schedule.stage_rank]
    per_slice = {
        kind: [value * factor / slices for value, factor in zip(table, slow, strict=True)]
        for kind, table in tables.items()
    }
    transfer = durations.transfer_s
    free = [0.0] * order.schedule.ranks
    starts: list[float] = []
    ends: list[float] = []
    for rank, action, inputs in order.steps:
        start = free[rank]
        for index, boundary in inputs:
            arrival = ends[index] + (transfer[boundary] if boundary >= 0 else 0.0)
            if arrival > start:
                start = arrival
        end = start + per_slice[action.kind][action.stage]
        starts.append(start)
        ends.append(end)
        free[rank] = end + (_blocking_s(order.schedule, action, transfer) if durations.transfers_block else 0.0)
    return starts, ends, free


def _blocking_s(schedule: Schedule, action: Action, transfer_s: Sequence[float]) -> float:
    """How long the action's own message keeps its rank, where a transfer occupies compute."""
    if action.kind is Kind.BACKWARD_WEIGHT:
        return 0.0
    target = action.stage + (1 if action.kind is Kind.FORWARD else -1)
    if not 0 <= target < schedule.stages or schedule.stage_rank[target] == schedule.stage_rank[action.stage]:
        return 0.0
    return transfer_s[min(target, action.stage)]


def timeline(order: Compiled | Schedule, durations: Durations) -> Timeline:
    """When each action runs; makespan_s is the end of the last action, before all-reduce and optimizer.

    Raises:
        InvalidSchedule: the schedule cannot run.
    """
    order = compile_schedule(order) if isinstance(order, Schedule) else order
    starts, ends, _ = _times(order, durations)
    spans = [Span(rank, action, s, e) for (rank, action, _), s, e in zip(order.steps, starts, ends, strict=True)]
    spans.sort(key=lambda span: (span.start_s, span.rank))
    return Timeline(order.schedule.ranks, tuple(spans), max(ends))


def step_time_s(order: Compiled, durations: Durations) -> float:
    """From the first action to the end of the last rank's all-reduce and optimizer."""
    _, _, free = _times(order, durations)
    if not durations.finish_s:
        return max(free)
    finish = [0.0] * order.schedule.ranks
    for rank, cost in zip(order.schedule.stage_rank, durations.finish_s, strict=True):
        finish[rank] += cost
    return max(end + extra for end, extra in zip(free, finish, strict=True))
