"""A job whose gradients overflow float16 unless the loss scale is small."""

import tiny
import torch
from torch import Tensor

from worker import PipelineJob


class Amplify(torch.autograd.Function):
    """Passes values on, and gradients a thousand times larger and back: an overflow on the way, nothing else."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return ((gradient * 1000).half() / 1000).to(gradient.dtype)


class Block(tiny.Block):
    def forward(self, x: Tensor) -> Tensor:
        return Amplify.apply(super().forward(x))


def job(**arguments) -> PipelineJob:
    return tiny.job(layer_class=Block, **arguments)
