"""A copy of a checkpoint's parameters in half precision, to hand on or to serve; what it costs in exactness is told.

Optimizer state stays out: nobody can train on from such a copy as if nothing had been lost.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from worker.checkpoint import layerfile
from worker.checkpoint.directory import Directory
from worker.checkpoint.manifest import Manifest
from worker.checkpoint.store import Store
from worker.checkpoint.verify import read_layer

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class DoesNotFit(ValueError):
    """A value is too large for the dtype; the message says where and what to do."""


@dataclass(frozen=True)
class Copied:
    """One layer's file. error: the largest difference of any value, as a share of its tensor's largest value."""

    name: str
    file: str
    bytes: int
    original_bytes: int
    error: float


def halve(store: Store, manifest: Manifest, folder: Path, dtype: str) -> list[Copied]:
    """Write one safetensors file a layer to the folder. original_bytes: of the same tensors as they were.

    Raises:
        BrokenCheckpoint, DoesNotFit, OSError.
    """
    out, found = Directory(folder), []
    for index, entry in enumerate(manifest.layers):
        tensors, _ = read_layer(store, entry)
        kept = {key: tensor for key, tensor in tensors.items() if not key.startswith("optimizer/")}
        halves, errors = {}, [0.0]
        for key, tensor in kept.items():
            halves[key], error = _halved(tensor, DTYPES[dtype], f"{key} of layer {entry.name!r}")
            errors.append(error)
        data = layerfile.pack(halves, {})
        file = f"{index:04}-{entry.name.replace('/', '-')}.safetensors"
        out.write(file, data, "half")
        whole = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
        found.append(Copied(entry.name, file, len(data), whole, max(errors)))
    return found


def _halved(tensor: Tensor, dtype: torch.dtype, what: str) -> tuple[Tensor, float]:
    """And the largest error. Whole numbers and booleans stay as they are."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor, 0.0
    half = tensor.to(dtype)
    largest = float(tensor.abs().max())
    if torch.isinf(half).any() and not torch.isinf(tensor).any():
        raise DoesNotFit(f"{what} has a value of {largest:.3g}, which {dtype} cannot hold; use --dtype bfloat16")
    error = float((half.to(torch.float64) - tensor.to(torch.float64)).abs().max())
    return half, error / largest if largest else 0.0
