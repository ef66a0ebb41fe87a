"""The tiny job at a pace of its own: each sample takes a while to fetch, so that there is time to interfere."""

import time
from collections.abc import Sequence

import tiny
from torch import Tensor

from worker import PipelineJob, TensorData


class PacedData(TensorData):
    pace_s = 0.0

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        time.sleep(self.pace_s * len(indices))
        return super().samples(indices)


def job(pace_s: float = 0.01, **arguments: object) -> PipelineJob:
    made = tiny.job(**arguments)
    made.data = PacedData(made.data.inputs, made.data.targets)
    PacedData.pace_s = pace_s
    return made
