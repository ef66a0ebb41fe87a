"""A layer whose state comes from elsewhere is built without random numbers, the slow part of building it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from worker import PipelineJob, TensorData
from worker.keys import reseed, seed_for_layer
from worker.layer import Layer


def _normal() -> nn.Module:
    module = nn.Linear(4, 4)
    nn.init.normal_(module.weight, std=0.02)
    return module


def _by_name() -> nn.Module:
    module = nn.Linear(4, 4)
    nn.init.trunc_normal_(tensor=module.weight)
    module.bias.data.uniform_(-1, 1)
    return module


BUILDERS = [lambda: nn.Linear(4, 4), lambda: nn.Embedding(4, 4), lambda: nn.MultiheadAttention(4, 2), _normal, _by_name]


def drawn(builder: Callable[[], nn.Module], initialise: bool) -> bool:
    """Whether building it drew random numbers."""
    samples = torch.zeros(2, 4)
    job = PipelineJob(
        layers={"layer": builder},
        loss=lambda output, targets: output.sum(),
        data=TensorData(samples, samples),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=1,
        total_steps=1,
    )
    device = torch.device("cpu")
    reseed(seed_for_layer(job.seed, 0), device)
    before = torch.get_rng_state()
    Layer(job, 0, device, initialise=initialise)
    return not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("builder", BUILDERS)
def test_no_random_number_is_drawn_for_what_will_be_loaded(builder: Callable[[], nn.Module]) -> None:
    assert drawn(builder, initialise=True)
    assert not drawn(builder, initialise=False)
