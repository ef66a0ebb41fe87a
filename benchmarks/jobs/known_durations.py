"""A job whose layers only sleep: stages of known duration, so that ranks do not contend for cores."""

import time
from typing import Any

import torch
from torch import Tensor, nn

from worker import PipelineJob, TensorData

WIDTH = 16


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, forward_s: float, backward_s: float) -> Tensor:
        context.backward_s = backward_s
        time.sleep(forward_s)
        return inputs.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(context.backward_s)
        return gradients[0], None, None


class Sleeper(nn.Module):
    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.times = forward_s, backward_s

    def forward(self, inputs: Tensor) -> Tensor:
        slept: Tensor = _Sleep.apply(self.linear(inputs), *self.times)
        return slept


def job(forward_s: list[float], backward_s: list[float], microbatches: int, steps: int = 12) -> PipelineJob:
    """One layer a stage, one sample a micro-batch."""
    times = list(zip(forward_s, backward_s, strict=True))
    rows = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1))
    return PipelineJob(
        layers={f"sleeper{i}": lambda pair=pair: Sleeper(*pair) for i, pair in enumerate(times)},
        loss=nn.functional.mse_loss,
        data=TensorData(rows, rows),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        global_batch=microbatches,
        total_steps=steps,
    )
