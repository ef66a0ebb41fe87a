"""Building a module whose state will be loaded anyway: without its random initial values, the slow part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FILLS = frozenset({"normal_", "uniform_", "kaiming_uniform_"})
"""What torch calls by these names fills a tensor in place and does nothing else; others are made of them."""
READS = frozenset({"item", "tolist", "numpy", "__array__"})
"""What turns a tensor into something else."""


def build_unfilled(builder: Callable[[], Any]) -> Any:
    """What the builder builds, with anything in its parameters and buffers; None where that would show.

    It would where random numbers end elsewhere - a fixed projection in a plain attribute, say - or where something is
    made of them: a copy, a norm, or, in `trunc_normal_`, the decision to draw once more.
    """
    before = torch.get_rng_state()
    try:
        with _Unfilled() as fills:
            module = builder()
    except Exception:  # it shows; or the builder fails in any case
        return None
    return module if fills.all_in_state(module) and torch.equal(torch.get_rng_state(), before) else None


class _Shows(Exception):
    """Something would be made of a tensor that was left as it is."""


class _Unfilled(TorchFunctionMode):
    """In-place random fills leave the tensor as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._tensors: list[Tensor] = []  # kept, so that no storage is given out twice
        self._storages: set[int] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in FILLS:
            filled: Tensor = args[0] if args else kwargs["tensor"]  # torch.nn.init passes it by name
            self._tensors.append(filled)
            self._storages.add(_storage(filled))
            return filled
        result = function(*args, **kwargs)
        if any(isinstance(one, Tensor) and _storage(one) in self._storages for one in args):
            elsewhere = isinstance(result, Tensor) and _storage(result) not in self._storages
            if elsewhere or name in READS:
                raise _Shows
        return result

    def all_in_state(self, module: Any) -> bool:
        if not isinstance(module, nn.Module):
            return True
        state = {_storage(one) for one in (*module.parameters(), *module.buffers())}
        return all(_storage(one) in state for one in self._tensors if one.numel())


def _storage(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().data_ptr()
