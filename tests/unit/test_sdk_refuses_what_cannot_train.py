"""A PipelineJob is checked where it is made, with a line that says what to give instead."""

import pytest
import torch
from torch import nn

from worker import PipelineJob, TensorData, Validation


def make(**changes: object) -> PipelineJob:
    data = TensorData(torch.zeros(4, 3), torch.zeros(4))
    fields = {
        "layers": {"a": lambda: nn.Linear(3, 1)},
        "loss": nn.functional.mse_loss,
        "data": data,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "global_batch": 2,
        "total_steps": 1,
    }
    return PipelineJob(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": []}, "at least one layer"),
        ({"layers": [("a", nn.Identity()), ("a", nn.Identity())]}, "a appears more than once"),
        ({"layers": {"a": 3}}, "layer 'a' must be a module or a callable"),
        ({"global_batch": 0}, "global_batch must be"),
        ({"total_steps": 1.5}, "total_steps must be"),
        ({"loss": None}, "loss must be callable"),
        ({"log": "metrics.txt"}, "log must be callable"),
        ({"data": [1, 2]}, "data must have"),
        ({"clip_norm": 0}, "clip_norm must be above 0"),
        ({"batch_rampup": [(5, 3)]}, "batches up to the global batch of 2"),
        ({"batch_rampup": [(5, 1), (4, 2)]}, "pairs that both grow"),
        ({"scale_learning_rate": True}, "needs a learning_rate"),
    ],
)
def test_refused_with_what_to_do(changes: dict, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make(**changes)


def test_layers_come_as_names_lists_or_a_sequential() -> None:
    assert make(layers=nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))).names == ("0", "1")
    assert make(layers=[nn.Linear(3, 2), lambda: nn.Linear(2, 1)]).names == ("0", "1")
    assert make(layers=[("in", nn.Linear(3, 2)), ("out", lambda: nn.Linear(2, 1))]).names == ("in", "out")


def test_validation_and_data_are_checked_too() -> None:
    with pytest.raises(ValueError, match="batches >= 1"):
        Validation(data=make().data, batches=0)
    with pytest.raises(ValueError, match="one target a sample"):
        TensorData(torch.zeros(3, 1), torch.zeros(2))


def test_a_learning_rate_is_scaled_with_the_batch_on_request_only() -> None:
    given = {"global_batch": 8, "batch_rampup": [(2, 2), (4, 4)], "learning_rate": lambda step: 0.8}
    assert [make(**given).rate_at(step) for step in (0, 2, 4)] == [0.8, 0.8, 0.8]
    scaled = make(**given, scale_learning_rate=True)
    assert [scaled.rate_at(step) for step in (0, 2, 4)] == [0.2, 0.4, 0.8]
    scaled.global_batch = 16
    assert scaled.rate_at(4) == 1.6, "a job file has doubled the batch that the rate was meant for"
