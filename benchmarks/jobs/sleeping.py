"""A job whose layers take known times: sleeping, so that more ranks than cores do not disturb one another."""

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from worker import PipelineJob, TensorData

WIDTH = 8


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds)
        return gradients[0], None


class Sleeps(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.linear = seconds, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        slept: Tensor = _Sleep.apply(self.linear(x), self.seconds)
        return slept


def job(layers: int = 4, seconds: float = 0.01, uneven: float = 0.3, steps: int = 60) -> PipelineJob:
    """uneven: how much longer than the first the last layer takes, as a share."""
    times = [seconds * (1 + uneven * i / max(1, layers - 1)) for i in range(layers)]
    return PipelineJob(
        layers={f"sleeps{i}": lambda i=i: Sleeps(times[i]) for i in range(layers)},
        loss=F.mse_loss,
        data=TensorData(torch.randn(64, WIDTH), torch.randn(64, WIDTH)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        global_batch=8,
        total_steps=steps,
    )
