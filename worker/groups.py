"""What an optimizer changes in its parameter groups while it steps: counters, estimates of a rate, modes; as JSON.

Only what differs from the optimizer as it was made: an edited hyperparameter of the job counts at its next start, and
most optimizers change nothing there, so that their layers' files stay the same bytes.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Changes = dict[str, dict[str, Any]]
"""By a group's number: its changed values, each as `_said` says it; JSON."""

DEPTH = 3
"""So deep is looked into an object for a change."""

_ABSENT = object()


class CannotCarry(Exception):
    """A value changes in a way that can be neither saved nor moved; the message names it and what to do."""


class Groups:
    """The groups of one optimizer, looked at when it is made and again whenever its state is asked for."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._made = [_looks_of(group) for group in optimizer.param_groups]

    def changes(self, without: Collection[str] = ()) -> Changes:
        """Since the optimizer was made. without: keys that are set from outside.

        Raises:
            CannotCarry: a change that is none of number, flag, text, None, 0-dim tensor or a tuple of them.
        """
        found: Changes = {}
        for number, (group, made) in enumerate(zip(self._optimizer.param_groups, self._made, strict=True)):
            now = _looks_of(group)
            for key in sorted((now.keys() | made.keys()) - set(without), key=str):
                if now.get(key) != made.get(key):
                    found.setdefault(str(number), {})[key] = _carried(number, key, group.get(key, _ABSENT))
        return found

    def take(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Make them in an optimizer as it was made.

        Raises:
            ValueError: it has other groups.
        """
        groups = self._optimizer.param_groups
        for number, values in changes.items():
            if int(number) >= len(groups):
                raise ValueError(f"a state of param_groups[{number}], but the optimizer has {len(groups)} groups")
            group = groups[int(number)]
            group |= {key: _restored(said, group, key) for key, said in values.items()}


def _said(value: Any) -> Any:
    """A plain value as JSON, with its type and all its bits. Raises TypeError: it is none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value) is tuple:
        return [_said(one) for one in value]
    if isinstance(value, Tensor) and value.dim() == 0 and not value.is_complex():
        return {"tensor": value.item(), "dtype": str(value.dtype).removeprefix("torch.")}
    raise TypeError


def _restored(said: Any, group: Mapping[str, Any], key: str) -> Any:
    """The inverse of `_said`. A tensor goes where the optimizer has made one, else beside the parameters."""
    if isinstance(said, list):
        return tuple(_restored(one, group, key) for one in said)
    if isinstance(said, dict):
        made = group.get(key)
        like = made if isinstance(made, Tensor) else group["params"][0]
        return torch.tensor(said["tensor"], dtype=getattr(torch, said["dtype"]), device=like.device)
    return said


def _carried(number: int, key: str, value: Any) -> Any:
    try:
        return _said(value)
    except TypeError:
        what = "is removed" if value is _ABSENT else f"({type(value).__name__}) changes"
        raise CannotCarry(
            f"param_groups[{number}][{key!r}] {what} while it steps, and cannot be saved or moved with its layer: "
            "keep numbers, flags, text or tuples of them there, tensors in the optimizer's state of a parameter"
        ) from None


def _looks_of(group: Mapping[str, Any]) -> dict[str, str]:
    return {key: _looks(value, DEPTH) for key, value in group.items() if key != "params"}


def _looks(value: Any, depth: int) -> str:
    """A text that differs where the value does. Of an object that is not plain, parts and attributes count."""
    try:
        return repr(_said(value))
    except TypeError:
        pass
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw.data).hexdigest()}"
    name = f"{type(value).__name__} {id(value)}" if not isinstance(value, Collection) else type(value).__name__
    return f"{name} {[_looks(part, depth - 1) for part in _parts(value)]}" if depth else name


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, Collection):
        return value
    return [part for item in getattr(value, "__dict__", {}).items() for part in item]
