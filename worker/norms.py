"""Norms compute in float32 whatever autocast does around them (SUR-08).

On CUDA torch's autocast sees to that; on a CPU it lets a norm compute in what comes in. Sums over many squares are what
half precision is worst at.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm, _NormBase)
HALVES = (torch.bfloat16, torch.float16)


def widen_norms(module: nn.Module) -> None:
    """From now on every norm in the module takes what is in half precision as float32. Twice is once."""
    for child in module.modules():
        if isinstance(child, NORMS) and _widen not in child._forward_pre_hooks.values():
            child.register_forward_pre_hook(_widen)


def _widen(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.float() if isinstance(one, Tensor) and one.dtype in HALVES else one for one in inputs)
