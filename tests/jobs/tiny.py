"""A tiny job with dropout, embedding and blocks: what the worker's tests train."""

import torch
from torch import nn
from torch.nn import functional as F

from worker import PipelineJob, TensorData, Validation

VOCABULARY, CONTEXT = 32, 8


class Embed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens)


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


def loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(-1, VOCABULARY), targets.reshape(-1))


def job(
    width=16, blocks=4, steps=12, global_batch=8, dropout=0.1, seed=3, every=0, clip=0.5, layer_class=Block, rampup=()
):
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(0, VOCABULARY, (40, CONTEXT), generator=generator)
    data = TensorData(tokens, (tokens * 5 + 1) % VOCABULARY)
    layers = {"embed": lambda: Embed(width)}
    layers |= {f"block{i}": lambda: layer_class(width, dropout) for i in range(blocks)}
    layers["head"] = lambda: nn.Linear(width, VOCABULARY)
    return PipelineJob(
        layers=layers,
        loss=loss,
        data=data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        learning_rate=lambda step: 1e-2 * min(1.0, (step + 1) / 5),
        global_batch=global_batch,
        total_steps=steps,
        validation=Validation(data=data, batches=2, every=every),
        clip_norm=clip,
        batch_rampup=rampup,
        seed=seed,
    )
