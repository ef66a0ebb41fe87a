"""The tiny job whose blocks take a while each, without needing a processor: more stages are truly faster."""

import time

import tiny
import torch

from worker import PipelineJob


class SleepingBlock(tiny.Block):
    seconds = 0.01

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return super().forward(x)


def job(block_s: float = 0.01, **arguments: object) -> PipelineJob:
    SleepingBlock.seconds = block_s
    return tiny.job(**arguments, layer_class=SleepingBlock)
