"""An interpreter of instruction lists: one rank's computing, sends and receives of one step."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from policies.ir.action import Action, Kind
from policies.ir.instruction import Instruction, Op, Program
from policies.ir.timeline import Span
from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.shapes import Shape
from worker.stage import Stage
from worker.transport import Group, Work

COMPUTING = frozenset(Op(kind) for kind in Kind)

Message = tuple[str, int, int, int]
"""What identifies a message of a step, at both ends: direction, receiving stage, micro-batch, slice."""


class Source(Protocol):
    """Where inputs and targets of a step's micro-batches come from."""

    def inputs(self, step: int, microbatch: int) -> Any: ...

    def targets(self, step: int, microbatch: int) -> Any: ...


def message_tags(programs: Iterable[Program]) -> dict[Message, int]:
    """A number for every message of a step, the same on every rank that was given the same programs."""
    messages = {instruction.message for program in programs for instruction in program if instruction.peer is not None}
    return {message: tag for tag, message in enumerate(sorted(messages))}


def forward_only(program: Program) -> Program:
    """The same routes without backward: what evaluation runs."""
    kept = {Op.FORWARD, Op.SEND_FORWARD, Op.RECV_FORWARD}
    return tuple(instruction for instruction in program if instruction.op in kept)


class Executor:
    """Runs programs of one rank over its stages.

    shapes: of what enters each stage but the first, slice by slice; the gradient that leaves the stage has the same.
    Stages and sources count units: micro-batch x slices + slice. Without slices a unit is a micro-batch.
    """

    def __init__(
        self,
        stages: Mapping[int, Stage],
        last: int,
        group: Group,
        tags: Mapping[Message, int],
        shapes: Mapping[int, Sequence[Shape]],
        device: torch.device,
        slices: int = 1,
    ) -> None:
        self._stages, self._last, self._group, self._tags = stages, last, group, tags
        self._shapes, self._device = shapes, device
        self._slices = slices
        self._values: dict[Message, Tensor] = {}
        self._expected: dict[Message, tuple[Work, Tensor]] = {}
        self._sending: list[tuple[Work, Tensor]] = []
        self._losses: dict[int, Tensor] = {}
        self._run: dict[Op, Callable[[Instruction], None]] = {
            Op.FORWARD: self._forward,
            Op.BACKWARD: self._backward,
            Op.BACKWARD_INPUT: self._backward,
            Op.BACKWARD_WEIGHT: self._backward_weight,
            Op.SEND_FORWARD: self._send,
            Op.SEND_BACKWARD: self._send,
            Op.RECV_FORWARD: self._receive,
            Op.RECV_BACKWARD: self._receive,
        }

    def run(self, program: Program, source: Source, step: int, scale: float) -> dict[int, Tensor]:
        """One pass. Returns the losses (detached scalars) of the micro-batches whose last stage is here.

        scale: weight of each micro-batch's loss in the step's loss.

        Raises:
            PeerLost, and what the user's layers raise.
        """
        self._source, self._step, self._scale = source, step, scale
        self._losses = {}
        for instruction in program:
            self._run[instruction.op](instruction)
        return self._finish()

    def run_traced(
        self, program: Program, source: Source, step: int, scale: float, rank: int, spans: list[Span]
    ) -> dict[int, Tensor]:
        """As `run`; appends a span for every action, without its wait for input, on time.perf_counter's clock."""
        self._source, self._step, self._scale = source, step, scale
        self._losses = {}
        for instruction in program:
            self._begun_s = time.perf_counter()
            self._run[instruction.op](instruction)
            if instruction.op in COMPUTING:
                if self._device.type == "cuda":
                    torch.cuda.current_stream(self._device).synchronize()
                action = Action(instruction.stage, Kind(instruction.op), instruction.microbatch, instruction.chunk)
                spans.append(Span(rank, action, self._begun_s, time.perf_counter()))
        return self._finish()

    def _finish(self) -> dict[int, Tensor]:
        for work, _ in self._sending:
            self._group.finish(work)
        self._sending.clear()
        return self._losses

    def _take(self, message: Message) -> Tensor:
        """A value that another stage made: from its rank, or from this one where it holds both stages."""
        if message not in self._expected:
            return self._values.pop(message)
        work, tensor = self._expected.pop(message)
        self._group.finish(work)
        self._begun_s = time.perf_counter()
        return tensor

    def _unit(self, do: Instruction) -> int:
        return do.microbatch * self._slices + do.chunk

    def _forward(self, do: Instruction) -> None:
        index, unit = do.stage, self._unit(do)
        inputs = (
            self._source.inputs(self._step, unit) if index == 0 else self._take(("F", index, do.microbatch, do.chunk))
        )
        targets = self._source.targets(self._step, unit) if index == self._last else None
        value = self._stages[index].forward(self._step, unit, inputs, targets)
        if index == self._last:
            self._losses[unit] = value
        else:
            self._check(index + 1, do.chunk, value)
            self._values["F", index + 1, do.microbatch, do.chunk] = value

    def _backward(self, do: Instruction) -> None:
        index = do.stage
        gradient = None if index == self._last else self._take(("B", index, do.microbatch, do.chunk))
        stage = self._stages[index]
        backward = stage.backward if do.op is Op.BACKWARD else stage.backward_input
        returned = backward(self._unit(do), gradient, self._scale)
        if index > 0:
            if returned is None:
                shape = self._shapes[index][do.chunk]
                returned = torch.zeros(shape.size, dtype=shape.dtype, device=self._device)
            self._values["B", index - 1, do.microbatch, do.chunk] = returned

    def _backward_weight(self, do: Instruction) -> None:
        self._stages[do.stage].backward_weight(self._unit(do))

    def _check(self, entering: int, slice_: int, value: Tensor) -> None:
        """gloo takes a short message for a longer one silently and aborts the process on a longer one."""
        shape = self._shapes[entering][slice_]
        if (tuple(value.shape), value.dtype) != (shape.size, shape.dtype):
            raise Ended(
                Cause.USER_EXCEPTION,
                f"layer {self._stages[entering - 1].layers[-1].name!r} returned a tensor of shape {tuple(value.shape)} "
                f"and {value.dtype} after {shape.size} and {shape.dtype}; every micro-batch must give the same",
            )

    def _send(self, do: Instruction) -> None:
        tensor = self._values.pop(do.message).contiguous()
        assert do.peer is not None
        self._sending.append((self._group.send(tensor, do.peer, self._tags[do.message]), tensor))

    def _receive(self, do: Instruction) -> None:
        shape = self._shapes[do.stage if do.op is Op.RECV_FORWARD else do.stage + 1][do.chunk]
        tensor = torch.empty(shape.size, dtype=shape.dtype, device=self._device)
        assert do.peer is not None
        self._expected[do.message] = (self._group.receive(tensor, do.peer, self._tags[do.message]), tensor)
