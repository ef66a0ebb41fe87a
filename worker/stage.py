"""A stage: a range of layers, forward and backward of one micro-batch at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.keys import reseed, seed_for_forward
from worker.layer import Layer


class Stage:
    """Runs its layers. What a backward needs is kept by micro-batch until then, and nowhere else."""

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Callable[[Tensor, Any], Tensor] | None,
        seed: int,
        device: torch.device,
    ) -> None:
        """loss: on the last stage only."""
        self.layers, self.loss, self.seed, self.device = layers, loss, seed, device
        self._alive: dict[int, tuple[Any, Tensor]] = {}

    def forward(self, step: int, microbatch: int, inputs: Any, targets: Any = None) -> Tensor:
        """The stage's output, or, with a loss, the scalar mean loss. Keeps what backward needs if gradients are on.

        Every layer draws from a stream of its own, keyed by (seed, step, micro-batch, global layer).
        """
        if isinstance(inputs, Tensor) and inputs.is_floating_point():
            inputs = inputs.detach().requires_grad_(torch.is_grad_enabled())
        value: Any = inputs
        for layer in self.layers:
            reseed(seed_for_forward(self.seed, step, microbatch, layer.index), self.device)
            value = layer.module(value)
            check_output(layer, value)
        if self.loss is not None:
            value = self.loss(value, targets)
            _check_loss(value)
        if torch.is_grad_enabled():
            self._alive[microbatch] = (inputs, value)
        output: Tensor = value
        return output.detach()

    def backward(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        """Accumulate parameter gradients; return the gradient of the stage's input, None where it has none.

        gradient: of the output; None for the loss itself, whose gradient is `scale`.
        """
        inputs, output = self._alive.pop(microbatch)
        if gradient is None:
            gradient = torch.full_like(output, scale)
        if output.requires_grad:
            torch.autograd.backward(output, gradient)
        return inputs.grad if isinstance(inputs, Tensor) else None

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
