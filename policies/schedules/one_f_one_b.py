"""1F1B and its relatives with one stage a rank: after a warm-up each rank alternates one forward with one backward."""

from collections.abc import Sequence

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """1F1B with a flush (Narayanan et al., 2019). Idle (P - 1)(F + B); peak activations min(m, P - s) on rank s."""
    return _schedule("1f1b", microbatches, [ranks - stage for stage in range(ranks)])


def eager_one_f_one_b(ranks: int, microbatches: int, depths: Sequence[int] = ()) -> Schedule:
    """1F1B that runs further ahead, so that transfers up to half a stage's time are hidden.

    depths: for each boundary how many micro-batches more are alive in front of it than behind (1 is plain 1F1B; the
    default 2 everywhere gives the peak min(m, 2(P - s) - 1)).

    Raises:
        ValueError: not one depth of at least 1 for each boundary.
    """
    depths = tuple(depths) or (2,) * (ranks - 1)
    if len(depths) != ranks - 1 or min(depths, default=1) < 1:
        raise ValueError(f"{ranks} ranks need {ranks - 1} depths of at least 1, got {depths}")
    in_flight = [1 + sum(depths[stage:]) for stage in range(ranks)]
    return _schedule("eager-1f1b", microbatches, in_flight)


def async_one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """PipeDream: 1F1B without a flush, an update after every backward. Rank s stashes P - s weight versions."""
    in_flight = [ranks - stage for stage in range(ranks)]
    versions = tuple(min(depth, microbatches) for depth in in_flight)
    return _schedule("async-1f1b", microbatches, in_flight, versions)


def two_buffered_weights(ranks: int, microbatches: int) -> Schedule:
    """PipeDream-2BW: 1F1B without a flush, updates of whole batches, two weight versions and a delay of one update."""
    in_flight = [ranks - stage for stage in range(ranks)]
    return _schedule("2bw", microbatches, in_flight, (2,) * ranks)


def _schedule(name: str, microbatches: int, in_flight: Sequence[int], versions: tuple[int, ...] = ()) -> Schedule:
    orders = tuple(alternate(stage, microbatches, depth) for stage, depth in enumerate(in_flight))
    return Schedule(name, microbatches, tuple(range(len(in_flight))), orders, versions=versions)


def alternate(stage: int, microbatches: int, in_flight: int) -> tuple[Action, ...]:
    """One stage's order with at most `in_flight` micro-batches alive at once."""
    ahead = min(in_flight, microbatches) - 1
    order = [Action(stage, Kind.FORWARD, i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            order.append(Action(stage, Kind.FORWARD, i + ahead))
        order.append(Action(stage, Kind.BACKWARD, i))
    return tuple(order)
