"""What one rank does at one moment: one stage's forward or backward of one micro-batch."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The computing kinds of action. Communication is derived from these by lowering, never written by hand."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One computation. All indices count from 0.

    stage: the global stage, 0 .. stages - 1 (a rank may hold several).
    microbatch: index over the whole step and all replicas.
    chunk: token slice inside the micro-batch; 0 where sequences are whole.
    """

    stage: int
    kind: Kind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        slice_ = f".{self.chunk}" if self.chunk else ""
        return f"{self.kind}{self.microbatch}{slice_}@{self.stage}"
