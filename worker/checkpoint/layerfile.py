"""One layer's state as the bytes of a safetensors file, and back."""

import hashlib
import json
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor


def pack(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """Equal states give equal bytes: safetensors sorts tensors, and there is one metadata key."""
    metadata = {"values": json.dumps(values, sort_keys=True)}
    return safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()}, metadata)


def unpack(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Raises ValueError: the bytes are no such file."""
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return tensors, json.loads(header["__metadata__"]["values"])
    except (safetensors.SafetensorError, KeyError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"not a layer file: {error}") from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
