"""A layer whose state comes from elsewhere is built without random numbers, the slow part of building it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from worker import PipelineJob, TensorData
from worker.errors import Ended
from worker.keys import reseed, seed_for_layer
from worker.layer import Layer


def _normal() -> nn.Module:
    module = nn.Linear(4, 4)
    nn.init.normal_(module.weight, std=0.02)
    return module


def _by_name() -> nn.Module:
    module = nn.Linear(4, 4)
    nn.init.normal_(tensor=module.weight)
    module.bias.data.uniform_(-1, 1)
    return module


BUILDERS = [lambda: nn.Linear(4, 4), lambda: nn.Embedding(4, 4), lambda: nn.MultiheadAttention(4, 2), _normal, _by_name]


class Scaled(nn.Linear):
    """Has what no state carries: something drawn, something filled, something computed from what was filled."""

    def __init__(self, what: str) -> None:
        super().__init__(4, 4)
        self.kept: Any = {
            "drawn": lambda: torch.rand(4),
            "filled": lambda: torch.empty(4).normal_(),
            "computed": lambda: self.weight.detach() * 2,
            "copied": lambda: self.weight.detach().clone(),
            "a number": lambda: float(self.weight.detach().norm()),
            "refused": lambda: torch.linalg.cholesky(self.weight.detach() * 0 + torch.eye(4)),
        }[what]()


def built(builder: Callable[[], nn.Module], initialise: bool) -> Layer:
    samples = torch.zeros(2, 4)
    job = PipelineJob(
        layers={"layer": builder},
        loss=lambda output, targets: output.sum(),
        data=TensorData(samples, samples),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=1,
        total_steps=1,
    )
    return Layer(job, 0, torch.device("cpu"), initialise=initialise)


def drawn(builder: Callable[[], nn.Module], initialise: bool) -> bool:
    """Whether building it drew random numbers."""
    reseed(seed_for_layer(0, 0), torch.device("cpu"))
    before = torch.get_rng_state()
    built(builder, initialise)
    return not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("builder", BUILDERS)
def test_no_random_number_is_drawn_for_what_will_be_loaded(builder: Callable[[], nn.Module]) -> None:
    assert drawn(builder, initialise=True)
    assert not drawn(builder, initialise=False)


@pytest.mark.parametrize("what", ["drawn", "filled", "computed", "copied", "a number", "refused"])
def test_what_no_state_carries_has_the_values_of_a_fresh_start(what: str) -> None:
    fresh, other = (built(lambda: Scaled(what), initialise).module for initialise in (True, False))
    assert torch.equal(torch.as_tensor(fresh.kept), torch.as_tensor(other.kept))


def test_a_fill_that_draws_until_it_is_content_comes_to_its_end() -> None:
    """`trunc_normal_` would look at what it has not filled."""
    def builder() -> nn.Module:
        module = nn.Linear(4, 4)
        module.weight.data.fill_(100.0)
        nn.init.trunc_normal_(module.weight)
        return module

    fresh, other = (built(builder, initialise).module for initialise in (True, False))
    assert torch.equal(fresh.weight, other.weight)


def test_a_builder_that_raises_is_named_with_its_error() -> None:
    with pytest.raises(Ended, match="ZeroDivisionError"):
        built(lambda: nn.Linear(4, 1 // 0), initialise=False)
