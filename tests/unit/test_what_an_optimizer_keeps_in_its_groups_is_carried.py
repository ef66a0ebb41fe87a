"""What an optimizer changes in its parameter groups is part of its layer's state, or refused; never silently lost."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jobs.counting import Counting
from torch import nn

from scheduler.protocol.messages import Cause
from worker import PipelineJob, TensorData, pieces
from worker.checkpoint import layerfile
from worker.errors import Ended
from worker.groups import Groups
from worker.layer import GROUPS, Layer

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TUPLES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple))


def layer(optimizer: Callable[..., Any] = Counting) -> Layer:
    job = PipelineJob(
        layers={"only": lambda: nn.Linear(4, 4)},
        loss=nn.functional.mse_loss,
        data=TensorData(torch.zeros(2, 4), torch.zeros(2, 4)),
        optimizer=optimizer,
        global_batch=2,
        total_steps=9,
    )
    return Layer(job, 0, torch.device("cpu"))


def train(one: Layer, steps: int, rate: float | None = None) -> None:
    for _ in range(steps):
        one.module(torch.ones(2, 4)).square().sum().backward()
        one.update(rate, None)


def saved_and_read(one: Layer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return layerfile.unpack(memoryview(bytearray(layerfile.pack(*one.state()))))


@pytest.mark.parametrize("offload", [False, True])
def test_a_layer_trains_on_from_a_file_as_if_nothing_had_been(offload: bool) -> None:
    undisturbed, resumed = layer(), layer()
    train(undisturbed, 3)
    resumed.keep_optimizer(offload)
    resumed.load(*saved_and_read(undisturbed))
    for one in (undisturbed, resumed):
        train(one, 3)
    assert torch.equal(undisturbed.module.weight, resumed.module.weight)
    assert undisturbed.state()[1] == resumed.state()[1]


def test_a_layer_that_moves_brings_them_along() -> None:
    source, destination = layer(), layer()
    train(source, 3)
    description = json.loads(json.dumps(pieces.describe(source)))
    destination.load(pieces.leaving(source), description["values"])
    for one in (source, destination):
        train(one, 3)
    assert torch.equal(source.module.weight, destination.module.weight)


def test_an_older_checkpoint_loads_as_before() -> None:
    one, other = layer(), layer()
    train(one, 2)
    tensors, values = saved_and_read(one)
    del values[GROUPS]
    other.load(tensors, values)
    assert GROUPS not in other.state()[1]


@pytest.mark.parametrize("rate", [None, 0.1])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.NAdam, torch.optim.Adafactor])
def test_optimizers_of_torch_change_nothing_there_so_that_files_stay_the_same(kind: Any, rate: float | None) -> None:
    one = layer(lambda parameters: kind(parameters, lr=0.2))
    train(one, 2, rate)
    assert GROUPS not in one.state()[1]


class Decaying(torch.optim.SGD):
    """Halves its own rate."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.param_groups[0]["lr"] /= 2


def test_a_rate_is_carried_where_it_is_the_optimizers_own() -> None:
    own, scheduled = (layer(lambda parameters: Decaying(parameters, lr=0.8)) for _ in range(2))
    train(own, 2)
    train(scheduled, 2, rate=0.1)
    assert own.state()[1] == {GROUPS: {"0": {"lr": 0.2}}}
    assert GROUPS not in scheduled.state()[1]


def counter() -> Any:
    class Counter:
        count = 0

    return Counter()


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[dict[str, Any]], Any]]] = {
    "list": (list, lambda group: group["kept"].append(1)),
    "Tensor": (lambda: torch.zeros(2), lambda group: group["kept"].add_(1)),
    "Counter": (counter, lambda group: setattr(group["kept"], "count", group["kept"].count + 1)),
    "dict": (dict, lambda group: group["kept"].update(a=len(group["kept"]))),
    "is removed": (lambda: 0, lambda group: group.pop("kept", None)),
    "function": (lambda: None, lambda group: group.update(kept=lambda: None)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_cannot_be_carried_is_refused_after_the_first_step(what: str) -> None:
    make, change = CHANGES[what]

    class Changing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            change(self.param_groups[0])

    def made(parameters: Any) -> Changing:
        optimizer = Changing(parameters)
        optimizer.param_groups[0]["kept"] = make()
        return optimizer

    with pytest.raises(Ended, match=r"layer 'only': param_groups\[0\]\['kept'\]") as caught:
        train(layer(made), 1)
    assert caught.value.cause is Cause.NOT_SUPPORTED
    assert what in caught.value.message


def test_what_only_changes_later_is_refused_when_the_state_is_wanted() -> None:
    one = layer(lambda parameters: torch.optim.SGD(parameters))
    train(one, 1)
    one.optimizer._optimizer.param_groups[0]["late"] = [1]
    with pytest.raises(Ended, match="late"):
        one.state()


def test_what_is_not_plain_and_does_not_change_does_no_harm() -> None:
    def made(parameters: Any) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(parameters)
        optimizer.param_groups[0] |= {"norm": torch.linalg.norm, "mask": torch.ones(3), "names": ["a", {"b": 1}]}
        return optimizer

    one = layer(made)
    train(one, 2)
    assert GROUPS not in one.state()[1]


@given(TUPLES, st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]), st.integers(-9, 9))
def test_plain_values_come_back_with_their_types_and_all_bits(value: Any, dtype: torch.dtype, number: int) -> None:
    first, second = (torch.optim.SGD([torch.zeros(1)]) for _ in range(2))
    before, after = Groups(first), Groups(second)
    scalar = torch.tensor(number).to(dtype)
    first.param_groups[0] |= {"new": value, "lr": (value, 0.5), "scalar": scalar}
    after.take(json.loads(json.dumps(before.changes())))
    assert repr(second.param_groups[0]["new"]) == repr(value)
    assert repr(second.param_groups[0]["lr"]) == repr((value, 0.5))
    found = second.param_groups[0]["scalar"]
    assert (found.dtype, found.item()) == (dtype, scalar.item())


def test_a_state_of_more_groups_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="the optimizer has 1 groups"):
        Groups(torch.optim.SGD([torch.zeros(1)])).take({"1": {"k": 3}})
