"""A job whose targets have one dimension: it has no tokens to slice."""

import torch
from torch import nn

from worker import PipelineJob, TensorData


def job() -> PipelineJob:
    layers = [nn.Linear(4, 4) for _ in range(4)]
    return PipelineJob(
        layers=[*layers, nn.Linear(4, 3)],
        loss=nn.functional.cross_entropy,
        data=TensorData(torch.randn(32, 4), torch.arange(32) % 3),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=8,
        total_steps=2,
    )
