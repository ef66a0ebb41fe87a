"""A layer's state as messages: its own tensors, cut where they are long; they leave from and arrive where they stay."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from worker.layer import Layer

PIECE_BYTES = 1 << 20
"""Of state that travels beside a step: small enough that an activation never waits long behind one."""


def describe(layer: Layer) -> dict[str, Any]:
    """What the receiver needs to know: keys, dtypes and shapes, and the plain values; JSON."""
    tensors, values = layer.state()
    entries = [
        [key, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for key, tensor in sorted(tensors.items())
    ]
    return {"entries": entries, "values": values}


def leaving(layer: Layer) -> dict[str, Tensor]:
    """The state as it can be sent: on the CPU, without gaps; not copied where it is so."""
    tensors, _ = layer.state()
    return {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}


def landing(layer: Layer, description: Mapping[str, Any]) -> dict[str, Tensor]:
    """Where a state can arrive: in the layer's own tensors, or new ones for what it has not, or not so."""
    own, _ = layer.state()
    places = {}
    for key, dtype_name, shape in description["entries"]:
        dtype, tensor = getattr(torch, dtype_name), own.get(key)
        fits = (
            tensor is not None
            and (tensor.dtype, list(tensor.shape)) == (dtype, shape)
            and tensor.device.type == "cpu"
            and tensor.is_contiguous()
        )
        places[key] = tensor.detach() if tensor is not None and fits else torch.empty(shape, dtype=dtype)
    return places


def cut(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The messages, by key: views of at most PIECE_BYTES. Both ends cut alike."""
    found: list[Tensor] = []
    for _, tensor in sorted(tensors.items()):
        if tensor.numel():
            found += torch.split(tensor.view(-1), PIECE_BYTES // tensor.element_size())
    return found
