"""One layer's state as the bytes of a safetensors file, and back."""

import hashlib
import json
import zlib
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


class Damage:
    """Finds out, part by part, whether a file is what was written. Both release the interpreter while they run.

    CRC-32 goes several times faster than SHA-256 and finds what disks and networks do; it does not find forgery.
    """

    def __init__(self, sha256: str, crc32: int | None) -> None:
        """crc32: None to compare the SHA-256."""
        self._sha256, self._crc32 = sha256, crc32
        self._hash, self._sum = hashlib.sha256(), 0

    def see(self, part: memoryview) -> None:
        if self._crc32 is None:
            self._hash.update(part)
        else:
            self._sum = zlib.crc32(part, self._sum)

    def found(self) -> str:
        """What does not match, "" where all does."""
        if self._crc32 is not None:
            return "" if self._sum == self._crc32 else "CRC-32"
        return "" if self._hash.hexdigest() == self._sha256 else "SHA-256"


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
