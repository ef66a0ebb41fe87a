"""A layer that overwrites what comes in trains the same wherever it is cut, with and without recompute."""

import pytest
import torch
from torch import Tensor, nn

from worker import PipelineJob, TensorData, probe
from worker.layer import build_layers
from worker.stage import Stage

CPU = torch.device("cpu")


class Overwriting(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(0.5))


def job(samples: Tensor) -> PipelineJob:
    return PipelineJob(
        layers={"first": lambda: Overwriting(4, 4), "second": lambda: Overwriting(4, 4)},
        loss=lambda output, targets: (output - targets).square().mean(),
        data=TensorData(samples, samples),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        global_batch=12,
        total_steps=1,
    )


def trained(cut: bool, recompute: bool) -> list[Tensor]:
    """Loss and gradients after three micro-batches."""
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(12, 4, generator=generator)
    whole = job(samples)
    layers = [*build_layers(whole, range(2), CPU).values()]
    parts = [layers[:1], layers[1:]] if cut else [layers]
    stages = [Stage(part, whole.loss if part is parts[-1] else None, 1, CPU, recompute) for part in parts]
    losses = []
    for microbatch, sample in enumerate(samples.split(4)):
        value = sample.clone()
        for stage in stages:
            value = stage.forward(0, microbatch, value, sample)
            losses += [value] if stage is stages[-1] else []
            value = value.detach().requires_grad_()
        gradient = None
        for stage in reversed(stages):
            gradient = stage.backward(microbatch, gradient, 1.0)
    return losses + [own.grad for layer in layers for own in layer.parameters.values() if own.grad is not None]


@pytest.mark.parametrize(("cut", "recompute"), [(True, False), (False, True), (True, True)])
def test_cut_apart_and_recomputed_it_trains_the_same(cut: bool, recompute: bool) -> None:
    wanted, found = trained(False, False), trained(cut, recompute)
    assert len(wanted) == len(found) == 7
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def test_its_times_are_measured_all_the_same() -> None:
    inputs = torch.ones(2, 4).requires_grad_()
    layer = build_layers(job(inputs.detach()), [0], CPU)[0]
    profile, output = probe._measure(layer, inputs, None, CPU)
    assert profile.backward_input_s > 0
    assert torch.equal(output, layer.module(torch.ones(2, 4)))
