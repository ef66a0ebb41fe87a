"""Token slices of one sequence: forward slice by slice with a cache of what earlier ones computed, backward in reverse.

A layer that mixes tokens says `takes_slices = True` and gets a SliceCache as second argument. What it wants to see of
earlier slices, such as keys and values, goes through `cache.extend`. There it becomes detached leaves: a later slice's
backward leaves its share of the gradient on them, and the earlier slice's backward starts from that share as well as
from its own output. Layers without the mark work token by token and see a slice as a short sequence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scheduler.protocol.messages import Cause
from worker.backward import run_backward
from worker.errors import Ended
from worker.keys import key
from worker.layer import Layer
from worker.stage import Stage

TIME = 1
"""The dimension of inputs, targets and activations that counts tokens."""


@dataclass
class _Kept:
    """One slice's tensors that later slices see, and the leaves that they see them as."""

    own: tuple[Tensor, ...]
    leaves: tuple[Tensor, ...]


class SliceCache:
    """What one layer keeps of one micro-batch. start: tokens before the present slice."""

    def __init__(self) -> None:
        self.start = 0
        self._kept: list[_Kept] = []
        self._plain = torch.empty(0)

    def extend(self, *tensors: Tensor, dim: int) -> tuple[Tensor, ...]:
        """Each tensor with those of all earlier slices before it, along `dim`. Once a slice and layer."""
        full = tuple(
            torch.cat([*(kept.leaves[i] for kept in self._kept), tensor], dim=dim) if self._kept else tensor
            for i, tensor in enumerate(tensors)
        )
        leaves = tuple(tensor.detach().requires_grad_(torch.is_grad_enabled()) for tensor in tensors)
        self._kept.append(_Kept(tensors, leaves))
        return full

    def also(self, tensor: Tensor, dim: int) -> Tensor:
        """As `extend`, for what takes part in no gradient."""
        self._plain = torch.cat([self._plain, tensor.detach()], dim=dim) if self.start else tensor.detach()
        return self._plain

    def roots(self) -> list[tuple[Tensor, Tensor]]:
        """(tensor, gradient) of the newest slice's kept tensors that later slices used; the slice is forgotten."""
        if not self._kept:
            return []
        kept = self._kept.pop()
        pairs = zip(kept.own, kept.leaves, strict=True)
        return [(own, leaf.grad) for own, leaf in pairs if leaf.grad is not None and own.requires_grad]


class SlicedStage(Stage):
    """A stage whose unit is a slice: unit = micro-batch x slices + slice. lengths: tokens of each slice."""

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Callable[[Tensor, Any], Tensor] | None,
        seed: int,
        device: torch.device,
        autocast: torch.dtype | None,
        lengths: Sequence[int],
    ) -> None:
        super().__init__(layers, loss, seed, device, autocast=autocast)
        self._lengths = tuple(lengths)
        self._caches: dict[int, dict[int, SliceCache]] = {}
        self._unit = 0

    def share(self, unit: int) -> float:
        """Of the micro-batch's tokens in this slice."""
        return self._lengths[unit % len(self._lengths)] / sum(self._lengths)

    def forward(self, step: int, microbatch: int, inputs: Any, targets: Any = None) -> Tensor:
        self._unit = microbatch
        output = super().forward(step, microbatch, inputs, targets)
        sequence, slice_ = divmod(microbatch, len(self._lengths))
        if not torch.is_grad_enabled() and slice_ == len(self._lengths) - 1:
            self._caches.pop(sequence, None)
        return output

    def backward(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        alive = self._alive.pop(microbatch)
        assert alive.output is not None
        if gradient is None:
            gradient = torch.full_like(alive.output, scale * self.share(microbatch))
        sequence, slice_ = divmod(microbatch, len(self._lengths))
        roots = [(alive.output, gradient)]
        for cache in self._caches.get(sequence, {}).values():
            roots += cache.roots()
        roots = [(tensor, share) for tensor, share in roots if tensor.requires_grad]
        if roots:
            run_backward(tuple(tensor for tensor, _ in roots), tuple(share for _, share in roots))
        if slice_ == 0:
            self._caches.pop(sequence, None)
        self.accumulated += 1
        return alive.inputs.grad if isinstance(alive.inputs, Tensor) else None

    def _keys(self, step: int, microbatch: int) -> tuple[int, int]:
        """Each slice draws from a stream of its own."""
        return step, key(4, *divmod(microbatch, len(self._lengths))) >> 1

    def _call(self, layer: Layer, value: Any) -> Any:
        if not getattr(layer.module, "takes_slices", False):
            return layer.module(value)
        sequence, slice_ = divmod(self._unit, len(self._lengths))
        cache = self._caches.setdefault(sequence, {}).setdefault(layer.index, SliceCache())
        cache.start = sum(self._lengths[:slice_])
        return layer.module(value, cache)


def slice_lengths(tokens: int, slices: int) -> list[int]:
    """As even as can be. Raises Ended where there are fewer tokens than slices."""
    if tokens < slices:
        raise Ended(Cause.NOT_SUPPORTED, f"{slices} slices of {tokens} tokens; choose fewer slices")
    return [tokens * (i + 1) // slices - tokens * i // slices for i in range(slices)]


class SlicedSource:
    """Inputs and targets of units, cut from those of micro-batches along TIME."""

    def __init__(self, source: Any, lengths: Sequence[int]) -> None:
        self._source, self._lengths = source, tuple(lengths)

    def inputs(self, step: int, unit: int) -> Any:
        return self._cut(self._source.inputs(step, unit // len(self._lengths)), unit)

    def targets(self, step: int, unit: int) -> Any:
        return self._cut(self._source.targets(step, unit // len(self._lengths)), unit)

    def _cut(self, value: Any, unit: int) -> Tensor:
        if not isinstance(value, Tensor) or value.dim() < 2 or value.shape[TIME] != sum(self._lengths):
            raise Ended(
                Cause.NOT_SUPPORTED,
                f"slicing needs inputs and targets of {sum(self._lengths)} tokens along dimension {TIME}",
            )
        slice_ = unit % len(self._lengths)
        return value.narrow(TIME, sum(self._lengths[:slice_]), self._lengths[slice_])
