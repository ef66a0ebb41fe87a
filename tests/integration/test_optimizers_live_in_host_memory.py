"""An offloaded optimizer trains the same, bit for bit, on any shape; the device keeps parameters and gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from gang import Site, curve, log, plan
from jobs.tiny import job as tiny_job

from policies.cost import Memory
from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.launcher import Launched
from worker.layer import Layer, build_layers
from worker.optimizer import LayerOptimizer

CPU = torch.device("cpu")
ARGUMENTS = {"blocks": 4, "steps": 12}


def offloaded(shape: ParallelPlan) -> ParallelPlan:
    return replace(shape, offload=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, shims: Any) -> dict[int, tuple[str, str]]:
    site = Site(tmp_path_factory.mktemp("alone"), shims)
    return curve(run(site, plan((0, 6), schedule="gpipe")))


def run(site: Site, shape: ParallelPlan, **spec: Any) -> Launched:
    launched = site.launch(shape, site.spec(directory=None, arguments=ARGUMENTS, **spec))
    finish(launched)
    return launched


def finish(launched: Launched) -> None:
    launched.wait()
    assert {report.cause for report in launched.reports.values()} <= {Cause.FINISHED, Cause.STOPPED}, log(launched)
    assert launched.pilot.cause is Cause.FINISHED, log(launched)
    launched.hang_up()


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_no_bit_differs_from_a_training_without(site: Site, alone: dict, schedule: str) -> None:
    assert curve(run(site, offloaded(plan((0, 3, 6), schedule=schedule)))) == alone


def test_an_asynchronous_schedule_steps_as_without(site: Site) -> None:
    shape = plan((0, 3, 6), schedule="2bw")
    spec = {"arguments": {**ARGUMENTS, "clip": None}, "directory": None}
    plain, other = (site.launch(one, site.spec(**spec)) for one in (shape, offloaded(shape)))
    finish(plain)
    finish(other)
    assert curve(other) == curve(plain)


def test_a_running_job_takes_it_up_and_gives_it_up_again_while_layers_move(site: Site, alone: dict) -> None:
    """2 stages -> 3 with the state on the host -> a moved layer -> 1 stage with the state on the device."""
    changes = [offloaded(plan((0, 2, 4, 6))), offloaded(plan((0, 3, 4, 6))), plan((0, 6))]
    launched = site.launch(plan((0, 3, 6)), site.spec(directory=None, arguments=ARGUMENTS, hold_at=(3, 6, 9)))
    for number, new in enumerate(changes, start=2):
        launched.wait(Launched.is_running)
        launched.change(new)
        launched.wait(Launched.is_running)
        assert launched.pilot.generation == number
    finish(launched)
    assert curve(launched) == alone


def test_a_checkpoint_resumes_with_and_without(site: Site, alone: dict) -> None:
    shapes = [offloaded(plan((0, 3, 6))), plan((0, 6)), offloaded(plan((0, 2, 4, 6)))]
    parts = []
    for steps, shape in zip((4, 8, 12), shapes, strict=True):
        parts.append(site.launch(shape, site.spec(arguments={**ARGUMENTS, "steps": steps})))
        finish(parts[-1])
    assert parts[-1].pilot.resumed_step == 8
    assert curve(*parts) == alone


def trained(layers: list[Layer], steps: int = 3) -> list[Layer]:
    """Leaves a gradient behind, as in the middle of a step."""
    for step in range(steps):
        value: Any = torch.arange(16).view(2, 8) % 32
        for layer in layers:
            value = layer.module(value)
        value.square().mean().backward()
        for layer in layers:
            if step + 1 < steps:
                layer.update(1e-2, 0.5)
    return layers


def tensors_of(layers: list[Layer], of_optimizer: bool) -> list[torch.Tensor]:
    """Either what the optimizer steps, with its states; or what the device computes with."""
    if not of_optimizer:
        return [one for layer in layers for own in layer.parameters.values() for one in (own, own.grad)]
    found: list[torch.Tensor] = []
    for layer in layers:
        assert isinstance(layer.optimizer, LayerOptimizer)
        inner = layer.optimizer._optimizer
        found += [one for group in inner.param_groups for one in group["params"]]
        found += [value for state in inner.state.values() for value in state.values() if value.dim()]
    return found


def bytes_of(tensors: list[torch.Tensor]) -> int:
    """Each storage once."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


@pytest.mark.parametrize("offload", [False, True])
def test_the_device_holds_what_the_plan_counts(offload: bool) -> None:
    job = tiny_job(dropout=0.0)
    made = build_layers(job, range(len(job.names)), CPU, offload=offload)
    layers = trained(list(made.values()))
    parameters = bytes_of([own for layer in layers for own in layer.parameters.values()])
    on_device, on_host = tensors_of(layers, False), tensors_of(layers, True)
    device, host = ({one.untyped_storage().data_ptr() for one in some} for some in (on_device, on_host))
    assert bool(device & host) != offload, "an offloaded optimizer has tensors of its own alone"
    held = bytes_of(on_device if offload else on_device + on_host)
    assert held == parameters * Memory(offload=offload).state_per_parameter_byte


def test_taking_it_up_in_the_middle_of_a_training_changes_no_value() -> None:
    job = tiny_job(dropout=0.0)
    plain, moving = ([*build_layers(job, range(len(job.names)), CPU).values()] for _ in range(2))
    for on_host in (True, False, True):
        trained(plain)
        trained(moving)
        for layer in moving:
            layer.keep_optimizer(on_host)
        for a, b in zip(plain, moving, strict=True):
            (tensors, values), (found, told) = a.state(), b.state()
            assert values == told
            assert tensors.keys() == found.keys()
            assert all(torch.equal(tensors[key], found[key]) for key in tensors)


def test_what_a_forward_writes_into_its_parameters_stays() -> None:
    """nn.Embedding(max_norm=...) scales the rows that it looks up."""
    job = tiny_job(dropout=0.0)
    plain, hosted = (
        [*build_layers(job, range(len(job.names)), CPU, offload=offload).values()] for offload in (False, True)
    )
    for layers in (plain, hosted):
        layers[0].module.token.max_norm = 0.5
        trained(layers)
    for a, b in zip(plain, hosted, strict=True):
        assert all(torch.equal(a.parameters[name], b.parameters[name]) for name in a.parameters)
