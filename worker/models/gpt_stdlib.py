"""The demo's training: a small GPT learns to write the Python standard library, byte by byte."""

import math

import torch

from worker.data.stdlib_text import VOCABULARY, stdlib_text
from worker.models.gpt import gpt_layers, next_token_loss
from worker.sdk import PipelineJob, Validation


def pipeline_job(
    width: int = 96,
    blocks: int = 6,
    heads: int = 4,
    context: int = 64,
    steps: int = 60,
    global_batch: int = 32,
    dropout: float = 0.1,
    learning_rate: float = 3e-3,
    validate_every: int = 20,
    validation_batches: int = 4,
    seed: int = 0,
) -> PipelineJob:
    """blocks: transformer blocks; layers are blocks + 2. context: bytes a sample. learning_rate: the peak."""
    train, validation = stdlib_text(context)

    def rate(step: int) -> float:
        """Linear warm-up over a tenth, then half a cosine down to a tenth."""
        warm_up = max(1, steps // 10)
        if step < warm_up:
            return learning_rate * (step + 1) / warm_up
        progress = (step - warm_up) / max(1, steps - warm_up)
        return learning_rate * (0.55 + 0.45 * math.cos(math.pi * progress))

    return PipelineJob(
        layers=gpt_layers(VOCABULARY, context, width, blocks, heads, dropout),
        loss=next_token_loss,
        data=train,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.01),
        learning_rate=rate,
        global_batch=global_batch,
        total_steps=steps,
        validation=Validation(data=validation, batches=validation_batches, every=validate_every),
        clip_norm=1.0,
        seed=seed,
    )
