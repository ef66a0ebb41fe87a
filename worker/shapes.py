"""What each layer passes on: found once by a trial down the pipeline, then known for every other cut."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.ir.plan import ParallelPlan
from worker.layer import Layer
from worker.rendezvous import Rendezvous
from worker.stage import check_output


@dataclass(frozen=True)
class Shape:
    """Of a tensor that travels between stages, for one micro-batch."""

    size: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        return math.prod(self.size) * self.dtype.itemsize

    def slice(self, lengths: Sequence[int], index: int) -> "Shape":
        """Of one slice along dimension 1. lengths: tokens of each; empty where sequences are whole."""
        if not lengths:
            return self
        return Shape((self.size[0], lengths[index], *self.size[2:]), self.dtype)

    def described(self) -> dict[str, Any]:
        return {"size": list(self.size), "dtype": str(self.dtype).removeprefix("torch.")}

    @staticmethod
    def read(described: Mapping[str, Any]) -> "Shape":
        return Shape(tuple(described["size"]), getattr(torch, described["dtype"]))


LayerShapes = dict[int, Shape]
"""Output shape of each layer, for the micro-batch size they were found with."""


def find_shapes(
    plan: ParallelPlan,
    rank: int,
    layers: Mapping[int, Layer],
    first_inputs: Any,
    autocast: torch.dtype | None,
    meet: Rendezvous,
    timeout_s: float,
) -> LayerShapes:
    """A trial forward of replica 0 of each stage, stage after stage; all ranks learn all shapes.

    first_inputs: of a micro-batch, on the rank of stage 0.

    Raises:
        Ended: a layer's output cannot travel.
    """
    device = next(iter(layers.values())).device
    for index, stage in enumerate(plan.stages):
        if stage.ranks[0] != rank:
            continue
        value = first_inputs
        if index > 0:
            entering = Shape.read(meet.get(f"shapes/{index - 1}", timeout_s)[-1])
            value = torch.zeros(entering.size, dtype=entering.dtype, device=device)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            found = _trial([layers[layer] for layer in stage.layers], value)
        meet.set(f"shapes/{index}", [shape.described() for shape in found])
    everything = meet.gather([f"shapes/{index}" for index in range(len(plan.stages))], timeout_s)
    return {
        layer: Shape.read(described)
        for stage, found_there in zip(plan.stages, everything, strict=True)
        for layer, described in zip(stage.layers, found_there, strict=True)
    }


def _trial(layers: list[Layer], value: Any) -> list[Shape]:
    """Evaluation mode and no gradients, so that no trace is left."""
    found = []
    with torch.no_grad():
        for layer in layers:
            layer.module.train(False)
            value = layer.module(value)
            layer.module.train(True)
            check_output(layer, value)
            leaving: Tensor = value
            found.append(Shape(tuple(leaving.shape), leaving.dtype))
    return found
