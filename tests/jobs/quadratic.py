"""A problem of known smoothness: half the mean of sum(a * (x + w0 + w1)^2) over noise x.

Its Hessian [[a, a], [a, a]] has twice the largest a as its largest eigenvalue.
"""

import torch
from torch import nn

from worker import PipelineJob, TensorData

CURVATURE = (10.0, 1.0, 0.5, 0.1)
SMOOTHNESS = 2 * max(CURVATURE)


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((len(CURVATURE),), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


def loss(output: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
    return 0.5 * (torch.tensor(CURVATURE) * output**2).sum(dim=1).mean()


def job(steps: int = 130) -> PipelineJob:
    noise = torch.randn(512, len(CURVATURE), generator=torch.Generator().manual_seed(4))
    return PipelineJob(
        layers={"first": Shift, "second": Shift},
        loss=loss,
        data=TensorData(noise, torch.zeros(512)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.02),
        global_batch=8,
        total_steps=steps,
    )
