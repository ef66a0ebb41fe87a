"""GPipe: all forwards, then all backwards (Huang et al., 2019). Keeps every micro-batch's activations."""

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def gpipe(ranks: int, microbatches: int) -> Schedule:
    """Idle (P - 1)(F + B) per rank at balanced stages; peak activations: all m."""
    orders = tuple(
        tuple(Action(stage, kind, i) for kind in (Kind.FORWARD, Kind.BACKWARD) for i in range(microbatches))
        for stage in range(ranks)
    )
    return Schedule("gpipe", microbatches, tuple(range(ranks)), orders)
