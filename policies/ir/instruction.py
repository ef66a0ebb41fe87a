"""What a worker executes: a rank's actions with its sends and receives in between. Made by `schedules.lowering`."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Op(StrEnum):
    """Computing operations carry the same letters as `Kind`; F and B in the others stand for what travels."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    SEND_FORWARD = "SEND_F"
    RECV_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECV_BACKWARD = "RECV_B"
    SEND_LAYER = "SEND_L"
    RECV_LAYER = "RECV_L"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation of one rank.

    stage: this rank's own stage that computes, sends or receives. A SEND_F of stage s meets the RECV_F of stage s + 1,
    a SEND_B of stage s the RECV_B of stage s - 1. microbatch: index over the whole step and all replicas.
    peer: the rank at the other end of a message, None for computing. Sends and receives are posted, not awaited:
    an operation waits for its own input only. SEND_L and RECV_L carry pieces of layers that change ranks beside the
    step: stage counts the layers on their way to or from this rank, microbatch the pieces of one.
    """

    op: Op
    stage: int
    microbatch: int
    chunk: int = 0
    peer: int | None = None

    @property
    def message(self) -> tuple[str, int, int, int]:
        """What identifies the message of a send or receive, equal at both ends: direction, receiving stage, index."""
        stage = self.stage + {Op.SEND_FORWARD: 1, Op.SEND_BACKWARD: -1}.get(self.op, 0)
        return self.op[-1], stage, self.microbatch, self.chunk

    def __str__(self) -> str:
        slice_ = f".{self.chunk}" if self.chunk else ""
        peer = "" if self.peer is None else f"~{self.peer}"
        return f"{self.op}{self.microbatch}{slice_}@{self.stage}{peer}"


Program = tuple[Instruction, ...]
"""All that one rank does in one step, in order."""


def text(programs: Iterable[Program]) -> str:
    """A stable text of the programs of all ranks: one line a rank."""
    return "\n".join(" ".join(map(str, program)) for program in programs)


def digest(programs: Iterable[Program]) -> str:
    """SHA-256 of `text`, in hex. Ranks compare it before the first step."""
    return hashlib.sha256(text(programs).encode()).hexdigest()
