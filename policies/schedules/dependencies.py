"""What an action waits for. Validator, lowering and timing all ask here."""

from policies.ir.action import Action, Kind

Result = tuple[str, int, int, int]
"""Something an action makes and others wait for: direction F or B, stage, micro-batch, slice."""

GRADIENT = {Kind.BACKWARD, Kind.BACKWARD_INPUT}


def result(action: Action) -> Result | None:
    """What the action makes for others; None for a weight gradient, which nobody waits for."""
    if action.kind is Kind.BACKWARD_WEIGHT:
        return None
    direction = "F" if action.kind is Kind.FORWARD else "B"
    return direction, action.stage, action.microbatch, action.chunk


def needs(action: Action, stages: int, slices: int = 1) -> tuple[Result, ...]:
    """What must exist before the action starts.

    A forward needs the stage before; a backward its own forward and the stage behind; a weight gradient its input
    gradient. Slices of one sequence see their predecessors: forward in order, backward in reverse order.
    """
    stage, microbatch, chunk = action.stage, action.microbatch, action.chunk
    wanted: list[Result] = []
    if action.kind is Kind.FORWARD:
        if stage > 0:
            wanted.append(("F", stage - 1, microbatch, chunk))
        if chunk > 0:
            wanted.append(("F", stage, microbatch, chunk - 1))
    elif action.kind in GRADIENT:
        wanted.append(("F", stage, microbatch, chunk))
        if stage < stages - 1:
            wanted.append(("B", stage + 1, microbatch, chunk))
        if chunk < slices - 1:
            wanted.append(("B", stage, microbatch, chunk + 1))
    else:
        wanted.append(("B", stage, microbatch, chunk))
    return tuple(wanted)
