"""Schedule + durations -> Timeline, event by event: each rank runs its next action as soon as its inputs are there."""

from dataclasses import dataclass
from functools import lru_cache

from policies.cost import Durations
from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule
from policies.ir.timeline import Span, Timeline
from policies.schedules.catalogue import make_schedule
from policies.schedules.dependencies import Result
from policies.schedules.validate import Footprint, footprint, turns, validate

Step = tuple[int, Action, tuple[tuple[int, int], ...], int]
"""(rank, action, inputs, boundary its message crosses or -1). An input is (index of the step that makes it, boundary it
crosses or -1 where it stays on the rank)."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schedule made ready to be priced many times.

    steps: every action in an order in which it can run. held: every (rank, stage) pair.
    """

    schedule: Schedule
    steps: tuple[Step, ...]
    held: tuple[tuple[int, int], ...]
    footprint: Footprint


def compile_schedule(schedule: Schedule) -> Compiled:
    """Check and index a schedule.

    Raises:
        InvalidSchedule: as `validate`; a deadlock names the cycle of ranks that wait for each other.
    """
    validate(schedule)
    return index_schedule(schedule)


def index_schedule(schedule: Schedule) -> Compiled:
    """The same for a schedule that is known to be complete.

    Raises:
        InvalidSchedule: a deadlock.
    """
    holder, stages = schedule.holders, schedule.stages
    made: dict[Result, int] = {}
    steps: list[Step] = []
    for rank, action, needed, done in turns(schedule.orders, stages, schedule.slices):
        inputs = []
        for wanted in needed:
            source = wanted[1]
            crosses = source != action.stage and holder[source, action.microbatch] != rank
            inputs.append((made[wanted], min(source, action.stage) if crosses else -1))
        sends = -1
        if done is not None:
            made[done] = len(steps)
            target = action.stage + (1 if action.kind is Kind.FORWARD else -1)
            if 0 <= target < stages and holder[target, action.microbatch] != rank:
                sends = min(target, action.stage)
        steps.append((rank, action, tuple(inputs), sends))
    held = dict.fromkeys((rank, action.stage) for rank, action, _, _ in steps)
    return Compiled(schedule, tuple(steps), tuple(held), footprint(schedule))


@lru_cache(maxsize=512)
def compiled(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Compiled:
    """A named schedule, compiled once. The generators are tested to be valid, so this is not checked again."""
    return index_schedule(make_schedule(name, ranks, microbatches, chunks=chunks))


def _times(order: Compiled, durations: Durations) -> tuple[list[float], list[float], list[float]]:
    """Start and end of each step, and when each rank is done with its last one."""
    slices, blocking = order.schedule.slices, durations.transfers_block
    tables = {
        Kind.FORWARD: durations.forward_s,
        Kind.BACKWARD: tuple(map(sum, zip(durations.backward_input_s, durations.backward_weight_s, strict=True))),
        Kind.BACKWARD_INPUT: durations.backward_input_s,
        Kind.BACKWARD_WEIGHT: durations.backward_weight_s,
    }
    per_slice = {kind: [value / slices for value in table] for kind, table in tables.items()}
    slow = durations.slow or (1.0,) * order.schedule.ranks
    transfer = durations.transfer_s
    free = [0.0] * order.schedule.ranks
    starts: list[float] = []
    ends: list[float] = []
    for rank, action, inputs, sends in order.steps:
        start = free[rank]
        for index, boundary in inputs:
            arrival = ends[index] + (transfer[boundary] if boundary >= 0 else 0.0)
            if arrival > start:
                start = arrival
        end = start + per_slice[action.kind][action.stage] * slow[rank]
        starts.append(start)
        ends.append(end)
        free[rank] = end + transfer[sends] if blocking and sends >= 0 else end
    return starts, ends, free


def timeline(order: Compiled | Schedule, durations: Durations) -> Timeline:
    """When each action runs; makespan_s is the end of the last action, before all-reduce and optimizer.

    Raises:
        InvalidSchedule: the schedule cannot run.
    """
    order = compile_schedule(order) if isinstance(order, Schedule) else order
    starts, ends, _ = _times(order, durations)
    spans = [Span(rank, action, s, e) for (rank, action, _, _), s, e in zip(order.steps, starts, ends, strict=True)]
    spans.sort(key=lambda span: (span.start_s, span.rank))
    return Timeline(order.schedule.ranks, tuple(spans), max(ends))


def makespan_s(order: Compiled, durations: Durations) -> float:
    """The end of the last action; as `timeline`, without the spans."""
    return max(_times(order, durations)[1])


def step_time_s(order: Compiled, durations: Durations) -> float:
    """From the first action to the end of the last rank's all-reduce and optimizer."""
    _, _, free = _times(order, durations)
    if not durations.finish_s:
        return max(free)
    finish = [0.0] * order.schedule.ranks
    for rank, stage in order.held:
        finish[rank] += durations.finish_s[stage]
    return max(end + extra for end, extra in zip(free, finish, strict=True))
