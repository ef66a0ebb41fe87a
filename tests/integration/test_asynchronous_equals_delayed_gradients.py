"""2BW and async 1F1B compute what a plain loop with delayed gradients computes, bit for bit."""

import sys
from collections.abc import Iterator

import pytest
import torch
from gang import JOBS, Site, curve, log, plan
from torch.func import functional_call

from policies.schedules.catalogue import make_schedule
from policies.schedules.validate import validate
from scheduler.protocol.messages import Cause
from worker.batches import Batches
from worker.keys import reseed, seed_for_forward
from worker.layer import Layer, build_layers
from worker.sdk import PipelineJob
from worker.versions import WINDOW, VersionedStage

STEPS, MICROBATCHES, CPU = 12, 4, torch.device("cpu")
ARGUMENTS = {"steps": STEPS, "clip": None, "dropout": 0.1}


def tiny_job() -> PipelineJob:
    sys.path.append(str(JOBS))
    try:
        import tiny
    finally:
        sys.path.remove(str(JOBS))
    return tiny.job(**ARGUMENTS)


def snapshot(layers: dict[int, Layer]) -> dict[int, dict[str, torch.Tensor]]:
    return {
        i: {name: p.detach().clone().requires_grad_() for name, p in layer.parameters.items()}
        for i, layer in layers.items()
    }


def losses_with_delay(bounds: tuple[int, ...], schedule: str) -> list[float]:
    """One process, no pipeline: every layer computes on the version that its stage would have had."""
    job = tiny_job()
    layers = build_layers(job, range(len(job.names)), CPU)
    size = job.global_batch // MICROBATCHES
    batches = Batches(job.data, job.seed, True, job.samples_before, size, CPU, torch.float32)
    stages = len(bounds) - 1
    stage_of = {layer: s for s in range(stages) for layer in range(bounds[s], bounds[s + 1])}
    per_update = MICROBATCHES if schedule == "2bw" else 1
    losses = []
    for first in range(0, STEPS, WINDOW):
        steps = min(WINDOW, STEPS - first)
        versions = [snapshot(layers)]
        for unit in range(steps * MICROBATCHES // per_update):
            if schedule == "2bw":
                used = {layer: max(unit - 1, 0) for layer in layers}
            else:
                used = {layer: max(0, unit - (stages - stage_of[layer]) + 1) for layer in layers}
            for microbatch in range(unit * per_update, (unit + 1) * per_update):
                step, own = first + microbatch // MICROBATCHES, microbatch % MICROBATCHES
                value = batches.inputs(step, own)
                for i, layer in layers.items():
                    reseed(seed_for_forward(job.seed, step, own, i), CPU)
                    value = functional_call(layer.module, versions[used[i]][i], (value,))
                loss = job.loss(value, batches.targets(step, own))
                loss.backward(torch.full_like(loss, 1 / per_update))
                losses.append(float(loss.detach()))
            assert job.learning_rate is not None
            rate = job.learning_rate(first + unit * per_update // MICROBATCHES)
            for i, layer in layers.items():
                for name, parameter in layer.parameters.items():
                    leaf = versions[used[i]][i][name]
                    parameter.grad, leaf.grad = leaf.grad, None
                layer.update(rate, None)
            versions.append(snapshot(layers))
    return [sum(losses[i : i + MICROBATCHES]) / MICROBATCHES for i in range(0, len(losses), MICROBATCHES)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As members compute: more threads add up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("schedule", ["2bw", "async-1f1b"])
@pytest.mark.parametrize("bounds", [(0, 3, 6), (0, 2, 4, 6)], ids=["two stages", "three stages"])
def test_losses_are_those_of_delayed_gradients(site: Site, schedule: str, bounds: tuple[int, ...]) -> None:
    launched = site.launch(plan(bounds, schedule=schedule), site.spec(directory=None, arguments=ARGUMENTS))
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.FINISHED}, log(launched)
    found = [float.fromhex(loss) for loss, _ in curve(launched).values()]
    assert found == losses_with_delay(bounds, schedule)


@pytest.mark.parametrize("schedule", ["2bw", "async-1f1b"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_no_more_versions_than_the_validator_counts(schedule: str, ranks: int) -> None:
    made = make_schedule(schedule, ranks, 3 * MICROBATCHES)
    wanted = validate(made).weight_versions
    for rank, order in enumerate(made.orders):
        job = tiny_job()
        stage = VersionedStage([Layer(job, 1, CPU)], None, 0, CPU, None, MICROBATCHES, schedule == "2bw")
        stage.begin(0, lambda _step: 1e-3)
        for action in order:
            if action.kind == "F":
                stage.forward(0, action.microbatch, torch.randn(2, 8, 16))
            else:
                stage.backward(action.microbatch, torch.randn(2, 8, 16), 1.0)
        assert stage.peak == wanted[rank]


def test_a_window_drains_before_a_stop_and_the_job_goes_on(site: Site) -> None:
    arguments = {**ARGUMENTS, "steps": 4000}
    first = site.launch(plan((0, 3, 6), schedule="2bw"), site.spec(arguments=arguments))
    first.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 1)
    first.stop(grace_s=60)
    first.wait()
    assert first.pilot.saved == first.pilot.step
    assert (first.pilot.step or 0) % WINDOW == 0
    arguments["steps"] = (first.pilot.step or 0) + 20
    second = site.launch(plan((0, 3, 6), schedule="2bw"), site.spec(arguments=arguments))
    second.wait()
    alone = site.launch(plan((0, 3, 6), schedule="2bw"), site.spec(directory=None, arguments=arguments))
    alone.wait()
    assert curve(first, second) == curve(alone)


@pytest.mark.parametrize(("arguments", "words"), [({"clip": 1.0}, "clip_norm"), ({"clip": None}, "replicas")])
def test_what_cannot_be_asynchronous_is_refused(site: Site, arguments: dict, words: str) -> None:
    shares = (2, 2) if words == "replicas" else None
    launched = site.launch(plan((0, 6), schedule="2bw", shares=shares), site.spec(directory=None, arguments=arguments))
    launched.wait()
    told = [report.message for report in launched.reports.values()]  # the other may only have seen its peer go
    assert any(words in message for message in told), told
    assert Cause.NOT_SUPPORTED in {report.cause for report in launched.reports.values()}
