"""Timeline: when each action ran or will run. Predicted and measured runs are the same type."""

from dataclasses import dataclass

from policies.ir.action import Action


@dataclass(frozen=True, slots=True)
class Span:
    """One action on one rank. Times in seconds from the start of the step."""

    rank: int
    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans of one step in order of their start; makespan_s is the end of the last one."""

    ranks: int
    spans: tuple[Span, ...]
    makespan_s: float
