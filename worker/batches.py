"""Which samples a step trains on: a pure function of seed, step and global batch, whatever the plan."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from worker.entrypoint import user_exception
from worker.keys import seed_for_epoch
from worker.sdk import Data


class Batches:
    """Micro-batches of a step by global index. inputs and targets come to the device, floats in the model's dtype."""

    def __init__(
        self,
        data: Data,
        seed: int,
        shuffle: bool,
        samples_before: Callable[[int], int],
        size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """samples_before: the global index of a step's first sample. size: samples in each micro-batch."""
        self.data, self.seed, self.shuffle = data, seed, shuffle
        self.samples_before, self.size, self.device, self.dtype = samples_before, size, device, dtype
        self._order = lru_cache(maxsize=2)(partial(_order_of_epoch, seed, len(data)))
        self._newest: tuple[tuple[int, int], tuple[Any, Any]] | None = None

    def indices(self, step: int, microbatch: int) -> list[int]:
        """Sample indices: the step's global samples cut into micro-batches; each epoch is one pass over the data."""
        first = self.samples_before(step) + microbatch * self.size
        count = len(self.data)
        return [self._place(*divmod(sample, count)) for sample in range(first, first + self.size)]

    def inputs(self, step: int, microbatch: int) -> Any:
        return self._get(step, microbatch)[0]

    def targets(self, step: int, microbatch: int) -> Any:
        return self._get(step, microbatch)[1]

    def _place(self, epoch: int, offset: int) -> int:
        return int(self._order(epoch)[offset]) if self.shuffle else offset

    def _get(self, step: int, microbatch: int) -> tuple[Any, Any]:
        """Inputs and targets, which are asked for one after the other where one stage is the first and the last."""
        if self._newest is None or self._newest[0] != (step, microbatch):
            self._newest = (step, microbatch), self._samples(step, microbatch)
        return self._newest[1]

    def _samples(self, step: int, microbatch: int) -> tuple[Any, Any]:
        try:
            inputs, targets = self.data.samples(self.indices(step, microbatch))
        except Exception as error:
            raise user_exception(error, f"data.samples raised at step {step}:") from None
        return self._move(inputs), self._move(targets)

    def _move(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self.device, self.dtype if value.is_floating_point() else None)
        if isinstance(value, dict):
            return {key: self._move(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._move(entry) for entry in value)
        return value


def _order_of_epoch(seed: int, samples: int, epoch: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed_for_epoch(seed, epoch)))


class Window:
    """Several steps as one: micro-batch i of the window is micro-batch i % count of step `step` + i // count."""

    def __init__(self, batches: Batches, step: int, count: int) -> None:
        self._batches, self._step, self._count = batches, step, count

    def inputs(self, _step: int, microbatch: int) -> Any:
        return self._batches.inputs(self._step + microbatch // self._count, microbatch % self._count)

    def targets(self, _step: int, microbatch: int) -> Any:
        return self._batches.targets(self._step + microbatch // self._count, microbatch % self._count)
