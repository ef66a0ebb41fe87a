"""The tiny job with its head tied to its embedding: declared, and by modules that share."""

import tiny
from torch import nn

from worker import PipelineJob


def declared(**arguments) -> PipelineJob:
    job = tiny.job(**arguments)
    head = ("head", lambda: nn.Linear(16, tiny.VOCABULARY, bias=False))
    return remade(job, [*job.named_layers[:-1], head], [("embed/token.weight", "head/weight")])


def shared(**arguments) -> PipelineJob:
    """As plain torch code ties weights; values start as in `declared` would not, so only cuts are compared."""
    job = tiny.job(**arguments)
    modules = [(name, builder()) for name, builder in job.named_layers[:-1]]
    head = nn.Linear(16, tiny.VOCABULARY, bias=False)
    head.weight = modules[0][1].token.weight
    return remade(job, [*modules, ("head", head)], ())


def remade(job: PipelineJob, layers, ties) -> PipelineJob:
    return PipelineJob(
        layers=layers,
        loss=job.loss,
        data=job.data,
        optimizer=job.optimizer,
        global_batch=job.global_batch,
        total_steps=job.total_steps,
        clip_norm=job.clip_norm,
        ties=ties,
        seed=job.seed,
    )
