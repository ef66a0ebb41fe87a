"""The tiny job with blocks that really compute, each member pinned to a core of its own."""

import os
from collections.abc import Sequence
from typing import Any

import tiny
import torch

from worker import PipelineJob


def job(cores: Sequence[int] = (), **arguments: Any) -> PipelineJob:
    """cores: of the members, in turn; none for wherever they are put."""
    torch.set_num_threads(1)
    if cores:
        os.sched_setaffinity(0, {cores[int(os.environ.get("JCT_MEMBER", "0")) % len(cores)]})
    return tiny.job(**arguments)
