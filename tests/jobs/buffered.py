"""A job whose layers have what is neither parameter nor optimizer state: running means, and a parameter never used."""

import torch
from torch import nn
from torch.nn import functional as F

from worker import PipelineJob, TensorData, Validation


class Normed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.norm(self.linear(x)))


def job(blocks: int = 8, steps: int = 12) -> PipelineJob:
    generator = torch.Generator().manual_seed(5)
    data = TensorData(torch.randn(40, 8, generator=generator), torch.randn(40, 8, generator=generator))
    return PipelineJob(
        layers={f"block{i}": lambda: Normed(8) for i in range(blocks)},
        loss=F.mse_loss,
        data=data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        global_batch=8,
        total_steps=steps,
        validation=Validation(data=data, batches=2, every=1),
        clip_norm=0.5,
    )
