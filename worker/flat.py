"""A layer's whole state as one flat buffer: one message to send, and views of it to receive into."""

from typing import Any

import torch
from torch import Tensor

from worker.layer import Layer

ALIGNMENT = 16


def describe(layer: Layer) -> dict[str, Any]:
    """What the receiver needs to know of the buffer: keys, dtypes and shapes in order, and the plain values."""
    tensors, values = layer.state()
    entries = [
        [key, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for key, tensor in sorted(tensors.items())
    ]
    return {"entries": entries, "values": values}


def size_of(description: dict[str, Any]) -> int:
    """Bytes of the buffer."""
    return sum(_padded(dtype, shape) for _, dtype, shape in description["entries"])


def pack(layer: Layer) -> Tensor:
    """The state as bytes, in the order of `describe`."""
    tensors, _ = layer.state()
    buffer = torch.empty(size_of(describe(layer)), dtype=torch.uint8)
    offset = 0
    for _, tensor in sorted(tensors.items()):
        count = tensor.numel() * tensor.element_size()
        if count:
            buffer[offset : offset + count].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        offset += -(-count // ALIGNMENT) * ALIGNMENT
    return buffer


def unpack(buffer: Tensor, description: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors by key, as views of the buffer."""
    tensors = {}
    offset = 0
    for key, dtype_name, shape in description["entries"]:
        dtype = getattr(torch, dtype_name)
        count = _count(dtype_name, shape)
        view = buffer[offset : offset + count]
        tensors[key] = view.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)
        offset += _padded(dtype_name, shape)
    return tensors


def _count(dtype_name: str, shape: list[int]) -> int:
    elements = 1
    for extent in shape:
        elements *= extent
    return elements * int(getattr(torch, dtype_name).itemsize)


def _padded(dtype_name: str, shape: list[int]) -> int:
    return -(-_count(dtype_name, shape) // ALIGNMENT) * ALIGNMENT
