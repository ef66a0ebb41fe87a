"""Two interleaved spirals, told apart by an MLP: all that a user writes to train on a pipeline."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from worker import PipelineJob, TensorData, Validation


def spirals(samples: int, seed: int) -> TensorData:
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 2
    turn = torch.rand(samples, generator=generator) * 2 * math.pi
    angle = turn + label * math.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / (2 * math.pi)
    return TensorData(points + 0.01 * torch.randn(samples, 2, generator=generator), label)


def hidden(inputs: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.LayerNorm(width))


def pipeline_job(width: int = 64, depth: int = 4, steps: int = 200, global_batch: int = 64) -> PipelineJob:
    layers = {f"hidden{i}": lambda i=i: hidden(width if i else 2, width) for i in range(depth)}
    layers["scores"] = lambda: nn.Linear(width, 2)
    return PipelineJob(
        layers=layers,
        loss=F.cross_entropy,
        data=spirals(4096, seed=1),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        global_batch=global_batch,
        total_steps=steps,
        validation=Validation(data=spirals(512, seed=2), batches=8, every=50),
    )
