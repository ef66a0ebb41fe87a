"""Handwritten digits of 8 x 8 pixels, read by a small convolutional net. Needs scikit-learn, which has the pictures."""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from worker import PipelineJob, TensorData, Validation
from worker.models.convnet import convnet_layers


def digits() -> tuple[TensorData, TensorData]:
    """1,500 pictures to learn from and 297 to judge by, pixels from 0 to 1."""
    found = load_digits()
    pictures = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    classes = torch.tensor(found.target)
    return TensorData(pictures[:1500], classes[:1500]), TensorData(pictures[1500:], classes[1500:])


def pipeline_job(width: int = 16, blocks: int = 3, steps: int = 150, global_batch: int = 60) -> PipelineJob:
    train, validation = digits()
    return PipelineJob(
        layers=convnet_layers(channels=1, classes=10, width=width, blocks=blocks, halvings=1),
        loss=F.cross_entropy,
        data=train,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        global_batch=global_batch,
        total_steps=steps,
        validation=Validation(data=validation, batches=4, every=50),
    )
