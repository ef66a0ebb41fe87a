"""The one validator of schedules: complete, ordered, free of deadlock, and what it keeps alive."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule
from policies.schedules.dependencies import Result, needs, result

WEIGHT_SHARE = 0.5
"""Part of an activation that a weight gradient needs after the input gradient: the inputs of linear layers."""


class InvalidSchedule(ValueError):
    """A schedule that cannot run, or that computes something else than one step."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What each rank keeps at its worst moment.

    peak_activations: an activation lives from its forward to its (input-)backward, in units of one rank's whole
    activation of one micro-batch: a chunk counts 1 / chunks, a slice 1 / slices. peak_held: the same with what a weight
    gradient still needs after its input gradient, WEIGHT_SHARE of an activation. weight_versions: 1 wherever the step
    is synchronous.
    """

    peak_activations: tuple[float, ...]
    peak_held: tuple[float, ...]
    weight_versions: tuple[int, ...]


def validate(schedule: Schedule) -> Footprint:
    """Check a schedule.

    Raises:
        InvalidSchedule: an action is missing, doubled or on the wrong rank; or ranks wait for each other.
    """
    _check_complete(schedule)
    for _ in walk(schedule.orders, schedule.stages, schedule.slices):
        pass
    return footprint(schedule)


def footprint(schedule: Schedule) -> Footprint:
    """What a valid schedule keeps alive."""
    parts = schedule.chunks * schedule.slices
    peaks = tuple(_peak(order) / parts for order in schedule.orders)
    held = tuple(_peak(order, WEIGHT_SHARE) / parts for order in schedule.orders)
    return Footprint(peaks, held, schedule.versions or (1,) * schedule.ranks)


Turn = tuple[int, Action, tuple[Result, ...], Result | None]
"""(rank, action, what it needed, what it made)."""


def walk(orders: Sequence[Sequence[Action]], stages: int, slices: int = 1) -> Iterator[tuple[int, Action]]:
    """All actions with their ranks, in an order in which they can run. Raises InvalidSchedule as `turns`."""
    return ((rank, action) for rank, action, _, _ in turns(orders, stages, slices))


def turns(orders: Sequence[Sequence[Action]], stages: int, slices: int = 1) -> Iterator[Turn]:
    """All actions in an order in which they can run: ranks take turns, each as soon as it can.

    Raises:
        InvalidSchedule: when no rank can go on; it names the action at the head of each stuck rank.
    """
    position = [0] * len(orders)
    done: set[Result] = set()
    left = sum(map(len, orders))
    wanted = [needs(order[0], stages, slices) if order else () for order in orders]
    active = [rank for rank, order in enumerate(orders) if order]
    while left:
        ready = [rank for rank in active if done.issuperset(wanted[rank])]
        for rank in ready:
            order = orders[rank]
            action = order[position[rank]]
            position[rank] += 1
            left -= 1
            needed, made = wanted[rank], result(action)
            if made is not None:
                done.add(made)
            if position[rank] < len(order):
                wanted[rank] = needs(order[position[rank]], stages, slices)
            else:
                active.remove(rank)
            yield rank, action, needed, made
        if not ready:
            heads = {rank: order[position[rank]] for rank, order in enumerate(orders) if position[rank] < len(order)}
            raise InvalidSchedule(_deadlock(orders, heads, done, stages, slices))


def _deadlock(
    orders: Sequence[Sequence[Action]], heads: dict[int, Action], done: set[Result], stages: int, slices: int
) -> str:
    """Name the stuck heads, and follow what each waits for until a rank comes up again or nobody makes it."""
    maker = {made: rank for rank, order in enumerate(orders) for made in map(result, order) if made is not None}
    rank, seen, chain = min(heads), set[int](), []
    while rank not in seen:
        seen.add(rank)
        head = heads[rank]
        wanted = next(need for need in needs(head, stages, slices) if need not in done)
        missing = Action(wanted[1], Kind(wanted[0]), wanted[2], wanted[3])
        if wanted not in maker:
            chain.append(f"{head} needs {missing}, which no rank makes")
            break
        rank = maker[wanted]
        chain.append(f"{head} needs {missing} of rank {rank}")
    stuck = ", ".join(f"rank {rank} at {head}" for rank, head in heads.items())
    return f"the schedule deadlocks; stuck heads: {stuck}; cycle: {', '.join(chain)}"


def _check_complete(schedule: Schedule) -> None:
    count: Counter[tuple[Kind, int, int, int]] = Counter()
    for rank, order in enumerate(schedule.orders):
        for action in order:
            if not 0 <= action.stage < schedule.stages or schedule.stage_rank[action.stage] != rank:
                raise InvalidSchedule(f"{action} stands on rank {rank}, which does not hold its stage")
            count[action.kind, action.stage, action.microbatch, action.chunk] += 1
    for stage, microbatch, chunk in product(
        range(schedule.stages), range(schedule.microbatches), range(schedule.slices)
    ):
        forward, whole, input_, weight = (count.pop((kind, stage, microbatch, chunk), 0) for kind in Kind)
        if forward != 1 or (whole, input_, weight) not in {(1, 0, 0), (0, 1, 1)}:
            raise InvalidSchedule(
                f"stage {stage}, micro-batch {microbatch}, slice {chunk}: {forward} forwards and "
                f"{whole} backwards ({input_} input, {weight} weight); each must come exactly once"
            )
    if count:
        raise InvalidSchedule(f"{next(iter(count))} is beyond the micro-batches or slices of the step")


def _peak(order: Sequence[Action], weight_share: float = 0.0) -> float:
    live = peak = 0.0
    for action in order:
        if action.kind is Kind.FORWARD:
            live += 1
            peak = max(peak, live)
        elif action.kind is Kind.BACKWARD:
            live -= 1
        else:
            live -= 1 - weight_share if action.kind is Kind.BACKWARD_INPUT else weight_share
    return peak
