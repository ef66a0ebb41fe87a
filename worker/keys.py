"""Random streams that do not depend on how a job is cut: every draw is keyed by what it is for."""

import hashlib
import struct

import torch

_PACK = tuple(struct.Struct(f">{count}q").pack for count in range(8))


def key(*parts: int) -> int:
    """63 bits from integers, well mixed: BLAKE2b of their 64-bit forms."""
    data = _PACK[len(parts)](*parts)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def seed_for_layer(seed: int, layer: int) -> int:
    """The key of a layer's initial parameters."""
    return key(1, seed, layer)


def seed_for_forward(seed: int, step: int, microbatch: int, layer: int) -> int:
    """The key of a layer's forward pass. microbatch: global index over all replicas of the step."""
    return key(2, seed, step, microbatch, layer)


def seed_for_epoch(seed: int, epoch: int) -> int:
    """The key of an epoch's sample order."""
    return key(3, seed, epoch)


def reseed(value: int, device: torch.device) -> None:
    """Start the streams that modules draw from on this device. torch.manual_seed costs more."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(value)
