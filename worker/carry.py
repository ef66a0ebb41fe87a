"""Layers that change members while a step runs, so that hardly anything is left to do at the boundary after it.

Their state before the step goes in pieces, as instructions between the step's own, over connections of lower priority.
A step changes nothing of it before its end. Then their gradients follow, and both ends run the optimizer on the same
bits: the destination has what the source has, and whether the layer changes hands can still be decided either way.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from policies.ir.instruction import Instruction, Op, Program
from worker.executor import COMPUTING
from worker.layer import Layer
from worker.reshard import TAGS, Parcel
from worker.transport import Group, Work

GRADIENT_TAG = TAGS // 2
"""From here on, in a transfer's tags, come gradients."""


class Carrier:
    """One member's part. group: bulk connections, in which parcels' peers count."""

    def __init__(self, group: Group, sending: Sequence[Parcel], receiving: Sequence[Parcel]) -> None:
        self._group, self._sending, self._receiving = group, sending, receiving
        self._works: list[Work] = []
        self._arriving: list[tuple[Parcel, list[Tensor]]] = []

    @property
    def arriving(self) -> dict[int, Layer]:
        """The layers that this member gets, by global index."""
        return {parcel.transfer.layer: parcel.layer for parcel in self._receiving}

    def release(self) -> Any:
        """As `Group.release`."""
        return self._group.release()

    def program(self, program: Program) -> Program:
        """With the pieces: receives first, since they only wait; sends spread evenly, each behind what is urgent."""
        receives = list(_instructions(Op.RECV_LAYER, self._receiving))
        sends = list(_instructions(Op.SEND_LAYER, self._sending))
        actions = sum(instruction.op in COMPUTING for instruction in program)
        each, waiting = -(-len(sends) // max(actions, 1)), iter(sends)
        made = list(receives)
        for instruction in program:
            if instruction.op in COMPUTING:
                made += islice(waiting, each)
            made.append(instruction)
        return (*made, *waiting)

    def run(self, do: Instruction) -> None:
        """Post one piece."""
        sends = do.op is Op.SEND_LAYER
        parcel = (self._sending if sends else self._receiving)[do.stage]
        post = self._group.send if sends else self._group.receive
        tag = parcel.transfer.first_tag + do.microbatch
        self._works.append(post(parcel.messages[do.microbatch], parcel.peer, tag))

    def hand_over(self) -> None:
        """The step's gradients are complete: post them too."""
        for parcel in self._sending:
            self._post(self._group.send, parcel, _gradients(parcel.layer))
        for parcel in self._receiving:
            places = [torch.empty_like(one, device="cpu") for one in _gradients(parcel.layer)]
            self._post(self._group.receive, parcel, places)
            self._arriving.append((parcel, places))

    def settle(self) -> None:
        """Wait for all of it. Then the layers that have arrived are ready for the optimizer.

        Raises:
            PeerLost.
        """
        for work in self._works:
            self._group.finish(work)
        for parcel, places in self._arriving:
            parcel.install()
            _take_gradients(parcel.layer, places)
        self._works, self._arriving = [], []

    def _post(self, post: Callable[[Tensor, int, int], Work], parcel: Parcel, messages: Sequence[Tensor]) -> None:
        tag = parcel.transfer.first_tag + GRADIENT_TAG
        self._works += [post(message, parcel.peer, tag + i) for i, message in enumerate(messages)]


def _instructions(op: Op, parcels: Sequence[Parcel]) -> Iterator[Instruction]:
    """stage: the parcel's number. microbatch: the piece's."""
    for number, parcel in enumerate(parcels):
        for piece in range(len(parcel.messages)):
            yield Instruction(op, number, piece, peer=parcel.peer)


def _trained(layer: Layer) -> list[torch.nn.Parameter]:
    return [parameter for parameter in layer.parameters.values() if parameter.requires_grad]


def _gradients(layer: Layer) -> list[Tensor]:
    """Which parameters have a gradient, the gradients, and the buffers, which a forward changes."""
    trained = _trained(layer)
    present = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
    messages = [present, *gradients, *layer.module.buffers()]
    return [message.detach().cpu().contiguous() for message in messages if message.numel()]


def _take_gradients(layer: Layer, found: Sequence[Tensor]) -> None:
    """The inverse of `_gradients`, into a layer of the same structure."""
    messages: Iterator[Tensor] = iter(found)
    trained = _trained(layer)
    present: list[int] = next(messages).tolist() if trained else []
    for parameter, has in zip(trained, present, strict=True):
        gradient = next(messages) if parameter.numel() else torch.empty_like(parameter)
        parameter.grad = gradient.to(parameter.device) if has else None
    with torch.no_grad():
        for buffer in layer.module.buffers():
            if buffer.numel():
                buffer.copy_(next(messages))
