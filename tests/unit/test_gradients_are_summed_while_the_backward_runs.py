"""Replicas sum a layer's gradients as soon as it is done, last layer first; what never comes counts as zeros."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from worker import PipelineJob, TensorData, reduction
from worker.layer import Layer, build_layers
from worker.reduction import Reduction, buckets

WIDTH = 4


class Doubling:
    """A group of two replicas that have the same gradients. begun: tensors whose sums have begun."""

    def __init__(self) -> None:
        self.begun: list[Tensor] = []

    def begin_sum(self, tensor: Tensor) -> Any:
        self.begun.append(tensor)
        return tensor

    def finish(self, work: Tensor) -> None:
        work.mul_(2)


class Watching(nn.Module):
    """Notes how many sums have begun when its own backward comes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.unused = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.ones(2))
        self.look: Any = None
        self.seen: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        out.register_hook(lambda _: setattr(self, "seen", self.look()))
        return out


def made(unused: bool) -> list[Layer]:
    def build() -> nn.Module:
        module = Watching()
        if not unused:
            del module.unused
        return module

    job = PipelineJob(
        layers={f"layer{i}": build for i in range(3)},
        loss=nn.functional.mse_loss,
        data=TensorData(torch.zeros(2, WIDTH), torch.zeros(2, WIDTH)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=2,
        total_steps=1,
    )
    return list(build_layers(job, range(3), torch.device("cpu")).values())


def backward(layers: list[Layer], group: Doubling) -> Reduction:
    for layer in layers:
        layer.module.look = lambda: len(group.begun)
    summing = Reduction(group, layers)
    value = torch.ones(2, WIDTH)
    for layer in layers:
        value = layer.module(value)
    summing.arm()
    value.sum().backward()
    summing.close()
    return summing


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer is large enough to travel alone."""
    monkeypatch.setattr(reduction, "BUCKET_BYTES", 0)


@pytest.mark.usefixtures("large")
def test_a_layer_travels_while_those_before_it_still_compute() -> None:
    layers, group = made(unused=False), Doubling()
    backward(layers, group)
    assert [layer.module.seen for layer in layers] == [2, 1, 0]
    assert len(group.begun) == 3


@pytest.mark.usefixtures("large")
def test_gradients_that_never_come_count_as_zeros_and_are_summed_in_the_same_order() -> None:
    layers, group = made(unused=True), Doubling()
    backward(layers, group).finish()
    assert [layer.module.seen for layer in layers] == [0, 0, 0], "the last layer lacks one, and the others wait for it"
    assert len(group.begun) == 3
    assert all(layer.parameters["unused"].grad.tolist() == [0, 0] for layer in layers)


def test_every_gradient_becomes_the_sum() -> None:
    layers, group = made(unused=False), Doubling()
    summing = backward(layers, group)
    own = [gradient.clone() for layer in layers for gradient in layer.all_gradients()]
    summing.finish()
    found = [gradient for layer in layers for gradient in layer.all_gradients()]
    assert all(torch.equal(two, 2 * one) for one, two in zip(own, found, strict=True))


def test_small_layers_travel_together() -> None:
    layers = made(unused=False)
    assert [[layer.index for layer in bucket] for bucket in buckets(layers)] == [[2, 1, 0]]


def test_packing_sends_fewer_messages_and_sums_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, gradients = [], []
    for bucket_bytes in (0, reduction.BUCKET_BYTES):
        monkeypatch.setattr(reduction, "BUCKET_BYTES", bucket_bytes)
        torch.manual_seed(4)
        layers, group = made(unused=False), Doubling()
        backward(layers, group).finish()
        counts.append(len(group.begun))
        gradients.append([gradient for layer in layers for gradient in layer.all_gradients()])
    assert counts == [3, 1]
    assert all(torch.equal(alone, packed) for alone, packed in zip(*gradients, strict=True))
