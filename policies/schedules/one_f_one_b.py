"""1F1B: after a warm-up each rank alternates one forward with one backward (Narayanan et al., 2019)."""

from collections.abc import Sequence

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """Idle (P - 1)(F + B) as GPipe; peak activations min(m, P - s) on rank s."""
    return _schedule("1f1b", microbatches, [ranks - stage for stage in range(ranks)])


def _schedule(name: str, microbatches: int, in_flight: Sequence[int]) -> Schedule:
    orders = tuple(alternate(stage, microbatches, depth) for stage, depth in enumerate(in_flight))
    return Schedule(name, microbatches, tuple(range(len(in_flight))), orders)


def alternate(stage: int, microbatches: int, in_flight: int) -> tuple[Action, ...]:
    """One stage's order with at most `in_flight` micro-batches alive at once."""
    ahead = min(in_flight, microbatches) - 1
    order = [Action(stage, Kind.FORWARD, i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            order.append(Action(stage, Kind.FORWARD, i + ahead))
        order.append(Action(stage, Kind.BACKWARD, i))
    return tuple(order)
