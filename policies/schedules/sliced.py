"""Token-sliced 1F1B (Seq1F1B): the unit is a slice of a sequence, and backwards run in reverse slice order."""

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def sliced_one_f_one_b(ranks: int, microbatches: int, slices: int = 2) -> Schedule:
    """Idle (P - 1)(F + B) / k; peak P - 1 - s + k slices on rank s, at most all of them.

    The last slice of a sequence goes backward first, so a rank warms up k - 1 slices longer than plain 1F1B.
    """
    forwards = [(i, k) for i in range(microbatches) for k in range(slices)]
    backwards = [(i, k) for i in range(microbatches) for k in reversed(range(slices))]
    orders = []
    for stage in range(ranks):
        ahead = min(ranks - 1 - stage + slices - 1, len(forwards) - 1)
        order = [Action(stage, Kind.FORWARD, *unit) for unit in forwards[:ahead]]
        for position, unit in enumerate(backwards):
            order += [Action(stage, Kind.FORWARD, *ahead_) for ahead_ in forwards[ahead + position :][:1]]
            order.append(Action(stage, Kind.BACKWARD, *unit))
        orders.append(tuple(order))
    return Schedule("sliced-1f1b", microbatches, tuple(range(ranks)), tuple(orders), slices=slices)
