"""One layer's state as the bytes of a safetensors file, and back."""

import hashlib
import json
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""What the format calls the dtypes that training states have."""


def pack(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """Equal states give equal bytes: safetensors sorts tensors, and there is one metadata key."""
    metadata = {"values": json.dumps(values, sort_keys=True)}
    return safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()}, metadata)


def unpack(data: memoryview) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors as views of `data`: nothing is copied. Raises ValueError: the bytes are no such file."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8:start]))
        values = json.loads(header.pop("__metadata__")["values"])
        return {key: _view(data, start, entry) for key, entry in header.items()}, values
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"not a layer file: {error}") from None


def _view(data: memoryview, start: int, entry: dict[str, Any]) -> Tensor:
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    first, stop = entry["data_offsets"]
    if stop == first:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=(stop - first) // dtype.itemsize, offset=start + first).view(shape)


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
