"""Replays instruction lists: one rank's computing, sends and receives of one step."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor

from policies.ir.action import Action, Kind
from policies.ir.instruction import Instruction, Op, Program
from policies.ir.timeline import Span
from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.reduction import Reduction
from worker.shapes import Shape
from worker.stage import Stage
from worker.transport import Group, Work

COMPUTING = frozenset(Op(kind) for kind in Kind)
BACKWARD = COMPUTING - {Op.FORWARD}
RECEIVING = frozenset({Op.RECV_FORWARD, Op.RECV_BACKWARD})

Message = tuple[str, int, int, int]
"""What identifies a message of a step, at both ends: direction, receiving stage, micro-batch, slice."""

Call = Callable[[], None]


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


AHEAD = 2
"""Receives that wait for messages of one kind: a message that finds none costs gloo another round trip."""


def posted_ahead(program: Program) -> Program:
    """Each receive moved up to where the one AHEAD of it in its channel was; the first ones to the very beginning."""
    channels: dict[tuple[Op, int, int | None], list[Instruction]] = {}
    for do in program:
        if do.op in RECEIVING:
            channels.setdefault((do.op, do.stage, do.peer), []).append(do)
    made = [do for receives in channels.values() for do in receives[:AHEAD]]
    waiting = {channel: iter(receives[AHEAD:]) for channel, receives in channels.items()}
    for do in program:
        if do.op in RECEIVING:
            made += islice(waiting[do.op, do.stage, do.peer], 1)
        else:
            made.append(do)
    return tuple(made)


class _Box:
    """Where a message's value waits on this rank, from whoever makes it to whoever uses it."""

    __slots__ = ("tensor", "work")

    tensor: Tensor
    work: Work


class Executor:
    """Runs one program of one rank over its stages, step after step.

    Every instruction is bound once to its stage, peer, tag, shape and boxes, so that a step only replays calls.

    shapes: of what enters each stage but the first, slice by slice; the gradient that leaves the stage has the same.
    Stages and sources count units: micro-batch x slices + slice. Without slices a unit is a micro-batch.
    """

    def __init__(
        self,
        program: Program,
        stages: Mapping[int, Stage],
        last: int,
        group: Group,
        tags: Mapping[Message, int],
        shapes: Mapping[int, Sequence[Shape]],
        device: torch.device,
        slices: int = 1,
        reductions: Mapping[int, Reduction] | None = None,
        carry: Callable[[Instruction], None] | None = None,
    ) -> None:
        """reductions: of stages with replicas. carry: posts a piece of a layer that changes ranks."""
        self._stages, self._last, self._group, self._tags = stages, last, group, tags
        self._shapes, self._device = shapes, device
        self._slices = slices
        self._boxes: defaultdict[Message, _Box] = defaultdict(_Box)
        self._sending: list[Work] = []
        self._losses: dict[int, Tensor] = {}
        self._arriving = {instruction.message for instruction in program if instruction.op in RECEIVING}
        self._trains = any(instruction.op in BACKWARD for instruction in program)
        bind: dict[Op, Callable[[Instruction], Call]] = {
            Op.FORWARD: self._forward,
            Op.BACKWARD: self._backward,
            Op.BACKWARD_INPUT: self._backward,
            Op.BACKWARD_WEIGHT: self._backward_weight,
            Op.SEND_FORWARD: self._send,
            Op.SEND_BACKWARD: self._send,
            Op.RECV_FORWARD: self._receive,
            Op.RECV_BACKWARD: self._receive,
        }
        if carry is not None:
            bind |= {op: partial(partial, carry) for op in (Op.SEND_LAYER, Op.RECV_LAYER)}
        self._calls = [(instruction, bind[instruction.op](instruction)) for instruction in posted_ahead(program)]
        for stage, reduction in (reductions or {}).items():
            self._reduce(stage, reduction)

    def run(self, source: Source, step: int, scale: float) -> dict[int, Tensor]:
        """One pass. Returns the losses (detached scalars) of the micro-batches whose last stage is here.

        scale: weight of each micro-batch's loss in the step's loss.

        Raises:
            PeerLost, and what the user's layers raise.
        """
        self._begin(source, step, scale)
        for _, call in self._calls:
            call()
        return self._finish()

    def run_traced(self, source: Source, step: int, scale: float, rank: int, spans: list[Span]) -> dict[int, Tensor]:
        """As `run`; appends a span for every action, without its wait for input, on time.perf_counter's clock."""
        self._begin(source, step, scale)
        for instruction, call in self._calls:
            self._begun_s = time.perf_counter()
            call()
            if instruction.op in COMPUTING:
                if self._device.type == "cuda":
                    torch.cuda.current_stream(self._device).synchronize()
                action = Action(instruction.stage, Kind(instruction.op), instruction.microbatch, instruction.chunk)
                spans.append(Span(rank, action, self._begun_s, time.perf_counter()))
        return self._finish()

    def close(self) -> None:
        """It never runs again: its calls hold it, and stages, layers and messages would stay with it."""
        self._calls.clear()
        self._boxes.clear()

    def _begin(self, source: Source, step: int, scale: float) -> None:
        self._source, self._step, self._scale = source, step, scale
        self._losses = {}

    def _finish(self) -> dict[int, Tensor]:
        for work in self._sending:
            self._group.finish(work)
        self._sending.clear()
        return self._losses

    def _reduce(self, stage: int, reduction: Reduction) -> None:
        """The stage's last backward brings its gradients on their way."""
        found = [i for i, (do, _) in enumerate(self._calls) if do.stage == stage and do.op in BACKWARD]
        if not found:
            return
        do, call = self._calls[found[-1]]

        def last() -> None:
            reduction.arm()
            call()
            reduction.close()

        self._calls[found[-1]] = do, last

    # --- binding -----------------------------------------------------------------------------------------------

    def _unit(self, do: Instruction) -> int:
        return do.microbatch * self._slices + do.chunk

    def _taking(self, message: Message) -> Callable[[], Tensor]:
        """Gives a value that another stage made: on its rank, or on this one where it holds both stages."""
        box, finish = self._boxes[message], self._group.finish

        def made_here() -> Tensor:
            tensor = box.tensor
            del box.tensor
            return tensor

        def arrived() -> Tensor:
            finish(box.work)
            self._begun_s = time.perf_counter()
            return made_here()

        return arrived if message in self._arriving else made_here

    def _forward(self, do: Instruction) -> Call:
        index, unit, forward, trains = do.stage, self._unit(do), self._stages[do.stage].forward, self._trains
        take = self._taking(("F", index, do.microbatch, do.chunk))

        def inputs() -> Any:
            """The first stage's want no gradient: nobody asks for it."""
            if index == 0:
                return self._source.inputs(self._step, unit)
            return take().requires_grad_() if trains else take()

        def ends() -> None:
            self._losses[unit] = forward(self._step, unit, inputs(), self._source.targets(self._step, unit))

        if index == self._last:
            return ends
        shape, box = self._shapes[index + 1][do.chunk], self._boxes["F", index + 1, do.microbatch, do.chunk]
        size, dtype = torch.Size(shape.size), shape.dtype

        def passes_on() -> None:
            value = forward(self._step, unit, inputs())
            if value.shape != size or value.dtype is not dtype:
                self._refuse(index, value, shape)
            box.tensor = value

        return passes_on

    def _backward(self, do: Instruction) -> Call:
        index, unit, stage = do.stage, self._unit(do), self._stages[do.stage]
        backward = stage.backward if do.op is Op.BACKWARD else stage.backward_input
        take = self._taking(("B", index, do.microbatch, do.chunk))
        box = self._boxes["B", index - 1, do.microbatch, do.chunk]

        def run() -> None:
            returned = backward(unit, None if index == self._last else take(), self._scale)
            if index > 0:
                box.tensor = self._empty(index, do.chunk).zero_() if returned is None else returned

        return run

    def _backward_weight(self, do: Instruction) -> Call:
        return partial(self._stages[do.stage].backward_weight, self._unit(do))

    def _send(self, do: Instruction) -> Call:
        assert do.peer is not None
        box, peer, tag, send = self._boxes[do.message], do.peer, self._tags[do.message], self._group.send

        def run() -> None:
            self._sending.append(send(box.tensor.contiguous(), peer, tag))
            del box.tensor

        return run

    def _receive(self, do: Instruction) -> Call:
        assert do.peer is not None
        box, peer, tag, receive = self._boxes[do.message], do.peer, self._tags[do.message], self._group.receive
        empty = partial(self._empty, do.stage if do.op is Op.RECV_FORWARD else do.stage + 1, do.chunk)

        def run() -> None:
            box.tensor = empty()
            box.work = receive(box.tensor, peer, tag)

        return run

    def _empty(self, entering: int, chunk: int) -> Tensor:
        shape = self._shapes[entering][chunk]
        return torch.empty(shape.size, dtype=shape.dtype, device=self._device)

    def _refuse(self, index: int, value: Tensor, shape: Shape) -> None:
        """gloo takes a short message for a longer one silently and aborts the process on a longer one."""
        raise Ended(
            Cause.USER_EXCEPTION,
            f"layer {self._stages[index].layers[-1].name!r} returned a tensor of shape {tuple(value.shape)} "
            f"and {value.dtype} after {shape.size} and {shape.dtype}; every micro-batch must give the same",
        )
