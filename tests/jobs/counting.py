"""Jobs whose optimizers know what they know by their parameter groups alone, as Prodigy and schedule-free ones do."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

from worker import PipelineJob, TensorData


class Counting(Optimizer):
    """A step of lr * d / k: a counter, an estimate that is a tensor, and a tuple that is not there at first."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 0.5) -> None:
        super().__init__(parameters, {"lr": lr, "k": 0, "warm": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] += 1
            group["warm"] = group["k"] < 3
            group["d"] = torch.tensor(0.7) * group.get("d", 1.0)
            group["last"] = (group["k"], "cold" if not group["warm"] else None)
            for one in group["params"]:
                if one.grad is not None:
                    one -= group["lr"] * group["d"] / group["k"] * one.grad


class Remembering(Counting):
    """Keeps a list, which cannot be carried."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 0.5) -> None:
        super().__init__(parameters, lr)
        self.param_groups[0]["history"] = []

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.param_groups[0]["history"].append(0.5)


def job(steps: int = 12, optimizer: type[Optimizer] = Counting) -> PipelineJob:
    generator = torch.Generator().manual_seed(5)
    data = TensorData(torch.randn(40, 8, generator=generator), torch.randn(40, 8, generator=generator))
    return PipelineJob(
        layers={f"block{i}": lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for i in range(6)},
        loss=F.mse_loss,
        data=data,
        optimizer=optimizer,
        learning_rate=lambda step: 0.5,
        global_batch=8,
        total_steps=steps,
    )


def remembering() -> PipelineJob:
    return job(optimizer=Remembering)
