"""Weight versions: asynchronous schedules run forward and backward of a micro-batch on the weights of one moment.

2BW (PipeDream-2BW): an update every step; step k computes on the weights before the update of step k - 1, so
W(k + 1) = W(k) - update(gradient of step k at W(k - 1)). Async 1F1B (PipeDream): an update after every micro-batch;
each stage computes on its newest weights at the forward, and keeps them for the backward.

Steps run in windows, between which the pipeline drains: a window starts without delay.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from worker.adapt.spill import Shelf, furthest
from worker.layer import Layer
from worker.stage import Stage

WINDOW = 8
"""Steps in one go; stops, saves, evaluations and changes come between windows."""

LEAST_VERSIONS = 2
"""On the device: what the next backward needs, and the newest."""

Rate = Callable[[int], float | None]
Leaves = dict[int, dict[str, Tensor]]
"""Parameters of one version, by layer and name."""


class VersionedStage(Stage):
    """A stage that steps by itself. microbatches: in a step; per_update: 1 or all of them. delayed: 2BW.

    norms: squared gradient norm by (step in the window, layer). peak: most versions held at once. resident: how many of
    them may stay on the device; None for all. peak_resident: most that did.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Callable[[Tensor, Any], Tensor] | None,
        seed: int,
        device: torch.device,
        autocast: torch.dtype | None,
        microbatches: int,
        delayed: bool,
    ) -> None:
        super().__init__(layers, loss, seed, device, autocast=autocast)
        self._microbatches, self._delayed = microbatches, delayed
        self._per_update = microbatches if delayed else 1
        self._current: Leaves | None = None
        self.norms: dict[tuple[int, int], float] = {}
        self.peak = self.peak_resident = 0
        self.resident: int | None = None
        self._shelf = Shelf()

    def begin(self, step: int, rate: Rate) -> None:
        """A window starts at this step."""
        self._first, self._rate = step, rate
        self._versions = {0: self._snapshot()}
        self._shelf = Shelf()
        self._latest = 0
        self._used: dict[int, int] = {}
        self.norms = {}
        self.peak = max(self.peak, 1)

    def forward(self, step: int, microbatch: int, inputs: Any, targets: Any = None) -> Tensor:
        """microbatch: index over the whole window. Without gradients the newest weights count."""
        if not torch.is_grad_enabled():
            return super().forward(step, microbatch, inputs, targets)
        version = max(microbatch // self._per_update - 1, 0) if self._delayed else self._latest
        self._used[microbatch] = version
        self._shelf.fetch(version)
        self._current = self._versions[version]
        try:
            return super().forward(step, microbatch, inputs, targets)
        finally:
            self._current = None
            self._put_away()

    def backward(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        version = self._used[microbatch]
        self._shelf.fetch(version)
        returned = super().backward(microbatch, gradient, scale)
        del self._used[microbatch]
        if (microbatch + 1) % self._per_update == 0:
            self._update(version, microbatch // self._microbatches)
        self._put_away()
        return returned

    def _keys(self, step: int, microbatch: int) -> tuple[int, int]:
        if self._current is None:
            return step, microbatch
        return self._first + microbatch // self._microbatches, microbatch % self._microbatches

    def _call(self, layer: Layer, value: Any) -> Any:
        if self._current is None:
            return layer.module(value)
        return torch.func.functional_call(layer.module, self._current[layer.index], (value,))

    def _update(self, version: int, step: int) -> None:
        """Gradients of one version, applied to the newest weights: a new version. step: in the window."""
        for layer in self.layers:
            leaves = self._versions[version][layer.index]
            for name, parameter in layer.parameters.items():
                parameter.grad, leaves[name].grad = leaves[name].grad, None
            place = step, layer.index
            self.norms[place] = self.norms.get(place, 0.0) + layer.squared_gradient_norm()
            layer.update(self._rate(self._first + step), None)
        self._latest += 1
        oldest_next = self._latest - 1 if self._delayed else self._latest
        needed = {*self._used.values(), oldest_next}
        self._shelf.forget(self._versions.keys() - needed)
        self._versions = {number: leaves for number, leaves in self._versions.items() if number in needed}
        self._versions[self._latest] = self._snapshot()
        self.peak = max(self.peak, len(self._versions))

    def _put_away(self) -> None:
        """Where memory is short, only what is used next stays: by the next backward, then by the next forward."""
        self.peak_resident = max(self.peak_resident, len(self._versions.keys() - self._shelf.versions))
        if self.resident is None:
            return
        waiting = [self._used[microbatch] for microbatch in sorted(self._used)]
        uses = [*waiting[:1], self._latest, *waiting[1:]]
        for version in furthest(self._versions, uses, self.resident):
            leaves = self._versions[version].values()
            self._shelf.put(version, (tensor for own in leaves for tensor in own.values()))

    def _snapshot(self) -> Leaves:
        return {
            layer.index: {
                name: parameter.detach().clone().requires_grad_(parameter.requires_grad)
                for name, parameter in layer.parameters.items()
            }
            for layer in self.layers
        }
