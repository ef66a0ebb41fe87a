"""A small GPT on packed rows of random documents."""

import torch

from worker import PipelineJob
from worker.data.packing import PackedDocuments
from worker.models.gpt import gpt_layers, packed_token_loss

VOCABULARY, SEPARATOR, CONTEXT = 20, 0, 24


def documents(count: int = 60) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, CONTEXT, (count,), generator=generator).tolist()
    return [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in lengths]


def job(dropout: float = 0.1, steps: int = 6) -> PipelineJob:
    return PipelineJob(
        layers=gpt_layers(VOCABULARY, CONTEXT, 16, 2, 2, dropout, SEPARATOR),
        loss=packed_token_loss,
        data=PackedDocuments(documents(), CONTEXT, SEPARATOR),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        global_batch=8,
        total_steps=steps,
        clip_norm=1.0,
    )
