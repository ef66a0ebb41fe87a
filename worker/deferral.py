"""Weight gradients of linear layers put off to a later moment, which is what zero-bubble schedules fill bubbles with.

A linear layer's backward splits by itself: the input's gradient is needed at once by the stage before, the weight's by
nobody before the optimizer. Both are computed by the same products as torch's own backward, so no bit differs.
Parameters of other layers are small, or their gradient comes with the input's; they are not put off.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WeightQueue:
    """Weight gradients of one stage that were put off, by micro-batch."""

    def __init__(self) -> None:
        self.defers = False
        self._current: list[Callable[[], None]] = []
        self._waiting: dict[int, list[Callable[[], None]]] = {}

    def add(self, work: Callable[[], None]) -> None:
        """Put off, or do at once where nothing is to be put off."""
        if self.defers:
            self._current.append(work)
        else:
            work()

    def close(self, microbatch: int) -> None:
        """What was put off since the last call belongs to this micro-batch."""
        self._waiting[microbatch] = self._current
        self._current = []

    def run(self, microbatch: int) -> None:
        for work in self._waiting.pop(microbatch):
            work()


def put_off(modules: Iterable[nn.Module], queue: WeightQueue) -> None:
    """Let every plain nn.Linear among the modules and their children hand its weight gradient to the queue."""
    for module in modules:
        for child in module.modules():
            if isinstance(child, nn.Linear) and type(child).forward is nn.Linear.forward:
                setattr(child, "forward", _Forward(child, queue))  # noqa: B010  (a method, to the type checker)


class _Forward:
    """Stands in for one linear layer's forward while gradients are on."""

    def __init__(self, linear: nn.Linear, queue: WeightQueue) -> None:
        self._linear = weakref.proxy(linear)  # which has this one: neither is to keep the other
        self._queue = queue

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._linear.weight, self._linear.bias
        if not torch.is_grad_enabled() or not weight.requires_grad:
            return F.linear(x, weight, bias)
        output: Tensor = _Linear.apply(x, weight, bias, self._queue)  # type: ignore[no-untyped-call]
        return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, queue: WeightQueue) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.queue = bias, queue
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        bias = ctx.bias
        flat = gradient.reshape(-1, gradient.shape[-1])

        @torch.no_grad()
        def later() -> None:
            _accumulate(weight, flat.t() @ x.reshape(-1, x.shape[-1]).to(flat.dtype))
            if bias is not None and bias.requires_grad:
                _accumulate(bias, flat.sum(0))

        into = (flat @ weight.to(flat.dtype)).view(x.shape) if ctx.needs_input_grad[0] else None
        ctx.queue.add(later)
        return into, None, None, None


def _accumulate(parameter: Tensor, gradient: Tensor) -> None:
    gradient = gradient.to(parameter.dtype)
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient
