"""A stage: a range of layers, forward and backward of one micro-batch at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scheduler.protocol.messages import Cause
from worker.backward import run_backward
from worker.deferral import WeightQueue, put_off
from worker.errors import Ended
from worker.keys import reseed, seed_for_forward
from worker.layer import Layer
from worker.norms import widen_norms


@dataclass(slots=True)
class _Alive:
    """What a micro-batch's backward needs. output is None where the stage recomputes it from the rest."""

    step: int
    inputs: Any
    targets: Any
    output: Tensor | None


class Stage:
    """Runs its layers. What a backward needs is kept by micro-batch until then, and nowhere else."""

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Callable[[Tensor, Any], Tensor] | None,
        seed: int,
        device: torch.device,
        recompute: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        """loss: on the last stage only. recompute: keep only inputs, run forward again before backward.

        autocast: compute in this dtype where torch deems it safe; parameters, norms and reductions keep theirs.
        """
        if autocast is not None:
            for layer in layers:
                widen_norms(layer.module)
        self.layers, self.loss, self.seed, self.device = layers, loss, seed, device
        self._recompute, self._autocast = recompute, autocast
        self._alive: dict[int, _Alive] = {}
        self.accumulated = 0
        """Backwards that have passed; whoever compares them sets it back."""
        self.watch: Callable[[int], None] | None = None
        """Told of each micro-batch whose whole backward has passed, while its gradients are the newest to be added."""
        self._weights = WeightQueue()
        self._overwrites: bool | None = None
        """Whether its layers compute in place on what comes in; None until a forward has shown it."""

    def split_backward(self) -> None:
        """From now on weight gradients can be put off: `backward_input` and `backward_weight` instead of `backward`."""
        put_off((layer.module for layer in self.layers), self._weights)

    def forward(self, step: int, microbatch: int, inputs: Any, targets: Any = None) -> Tensor:
        """The stage's output, or, with a loss, the scalar mean loss. Keeps what backward needs if gradients are on.

        inputs: a leaf that requires a gradient, where the stage before wants one.
        """
        if not torch.is_grad_enabled():
            return self._run(step, microbatch, inputs, targets)
        if self._recompute:
            self._alive[microbatch] = _Alive(step, inputs, targets, None)
            with torch.no_grad():
                return self._run_on_copy(step, microbatch, inputs, targets)
        output = self._run_on_copy(step, microbatch, inputs, targets)
        self._alive[microbatch] = _Alive(step, inputs, targets, output)
        return output.detach()

    def backward(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        """Accumulate parameter gradients; return the gradient of the stage's input, None where it has none.

        gradient: of the output; None for the loss itself, whose gradient is `scale`.
        """
        alive = self._alive.pop(microbatch)
        output, buffers = alive.output, []
        if output is None:  # buffers, such as running means, have seen this micro-batch already: not twice
            buffers = [(buffer, buffer.clone()) for layer in self.layers for buffer in layer.module.buffers()]
            output = self._run_on_copy(alive.step, microbatch, alive.inputs, alive.targets)
        if gradient is None:
            gradient = torch.full_like(output, scale)
        if output.requires_grad:
            run_backward((output,), (gradient,))
        for buffer, seen in buffers:
            buffer.copy_(seen)
        self.accumulated += 1
        if self.watch is not None:
            self.watch(microbatch)
        return alive.inputs.grad if isinstance(alive.inputs, Tensor) else None

    def _run_on_copy(self, step: int, microbatch: int, inputs: Any, targets: Any) -> Tensor:
        """As `_run`, and inputs stay as they are: a recompute needs them again, a leaf takes nothing in place."""
        if not isinstance(inputs, Tensor) or self._overwrites is False:
            return self._run(step, microbatch, inputs, targets)
        copy = inputs.clone()
        output = self._run(step, microbatch, copy, targets)
        self._overwrites = self._overwrites or copy._version > 0
        return output

    def _run(self, step: int, microbatch: int, value: Any, targets: Any) -> Tensor:
        """All layers, each drawing from a stream of its own, keyed by (seed, step, micro-batch, global layer)."""
        if self._autocast is not None:
            with torch.autocast(self.device.type, self._autocast):
                return self._run_layers(step, microbatch, value, targets)
        return self._run_layers(step, microbatch, value, targets)

    def _keys(self, step: int, microbatch: int) -> tuple[int, int]:
        """What the random streams of a forward are keyed by: step, and micro-batch within it."""
        return step, microbatch

    def _call(self, layer: Layer, value: Any) -> Any:
        return layer.module(value)

    def _run_layers(self, step: int, microbatch: int, value: Any, targets: Any) -> Tensor:
        step, microbatch = self._keys(step, microbatch)
        for layer in self.layers:
            reseed(seed_for_forward(self.seed, step, microbatch, layer.index), self.device)
            value = self._call(layer, value)
            check_output(layer, value)
        if self.loss is not None:
            value = self.loss(value, targets)
            _check_loss(value)
        output: Tensor = value
        return output

    def backward_input(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        """The gradient of the stage's input now; the weights' in `backward_weight`."""
        self._weights.defers = True
        try:
            returned = self.backward(microbatch, gradient, scale)
        finally:
            self._weights.defers = False
        self._weights.close(microbatch)
        return returned

    def backward_weight(self, microbatch: int) -> None:
        self._weights.run(microbatch)

    def train(self, mode: bool) -> None:
        for layer in self.layers:
            layer.module.train(mode)


def check_output(layer: Layer, value: Any) -> None:
    """Any two layers may be cut apart, so each output must be able to travel.

    Raises:
        Ended: USER_EXCEPTION, naming the layer and what to do.
    """
    if isinstance(value, Tensor) and value.is_floating_point():
        return
    what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise Ended(
        Cause.USER_EXCEPTION,
        f"layer {layer.name!r} returned {what}; layers may pass one floating-point tensor: pack several into one, or "
        "merge the two layers that share them",
    )


def _check_loss(value: Any) -> None:
    if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point():
        return
    what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise Ended(Cause.USER_EXCEPTION, f"the loss returned {what}; it must return a scalar, the mean over the samples")
