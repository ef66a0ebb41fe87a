"""float16: one loss scale for all stages, halved when gradients overflow; the update of such a step is left out."""

import json
from dataclasses import replace

import pytest
from gang import Site, curve, log, metrics, plan

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.launcher import Launched
from worker.progress import Progress
from worker.scaling import GROWS_AFTER, adjust

ARGUMENTS = {"steps": 16, "dropout": 0.0}


def half(bounds: tuple[int, ...], schedule: str = "1f1b") -> ParallelPlan:
    return plan(bounds, schedule=schedule, precision="float16")


def run(site: Site, shape: ParallelPlan, **spec) -> Launched:
    launched = site.launch(shape, site.spec(**{"entrypoint": "overflowing:job", "arguments": ARGUMENTS, **spec}))
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED, log(launched)
    return launched


def norms(launched: Launched) -> list[float | None]:
    return [line["grad_norm"] for line in metrics(launched) if "grad_norm" in line]


def manifest(site: Site) -> dict:
    return json.loads(next(site.checkpoints.glob("step-*/manifest.json")).read_text())


def test_overflows_at_the_start_halve_the_scale_until_training_goes_on(site: Site) -> None:
    launched = run(site, half((0, 6)), keep=1)
    found = norms(launched)
    overflows = found.count(None)
    assert 0 < overflows < 12
    assert None not in found[overflows:]
    kept = manifest(site)
    assert kept["loss_scale"] == 2.0 ** (16 - overflows)
    assert kept["good_steps"] == 16 - overflows


@pytest.mark.parametrize(("bounds", "schedule"), [((0, 3, 6), "1f1b"), ((0, 2, 4, 6), "zb-h1")])
def test_stages_skip_alike_and_lose_no_bit(site: Site, bounds: tuple[int, ...], schedule: str) -> None:
    alone, cut = run(site, half((0, 6)), directory=None), run(site, half(bounds, schedule), directory=None)
    assert curve(cut) == curve(alone)
    assert None in norms(cut)


def test_the_scale_outlives_a_resume_and_a_change(site: Site) -> None:
    alone = run(site, half((0, 6)), directory=None)
    first = run(site, half((0, 3, 6)), arguments={**ARGUMENTS, "steps": 9})
    spec = site.spec(entrypoint="overflowing:job", arguments=ARGUMENTS, hold_at=(12,))
    second = site.launch(half((0, 6)), spec)
    second.wait(Launched.is_running)
    second.change(half((0, 2, 6)))
    second.wait()
    assert curve(first, second) == curve(alone)


def test_it_learns_what_float32_learns(site: Site) -> None:
    losses = []
    for precision in ("float32", "float16"):
        shape = replace(half((0, 3, 6)), precision=precision)
        launched = run(site, shape, entrypoint="tiny:job", directory=None, arguments={"steps": 30, "dropout": 0.0})
        losses.append([line["loss"] for line in metrics(launched) if "loss" in line][-1])
    assert abs(losses[1] - losses[0]) < 0.1 * losses[0]


def test_an_asynchronous_schedule_is_refused(site: Site) -> None:
    launched = site.launch(half((0, 3, 6), "2bw"), site.spec(directory=None, arguments={"clip": None}))
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.NOT_SUPPORTED}


def test_the_scale_grows_again_after_many_good_steps() -> None:
    progress = Progress(loss_scale=8.0)
    for _ in range(GROWS_AFTER - 1):
        adjust(progress, finite=True)
    assert progress.loss_scale == 8.0
    adjust(progress, finite=True)
    assert (progress.loss_scale, progress.good_steps) == (16.0, 0)
    adjust(progress, finite=False)
    assert (progress.loss_scale, progress.good_steps) == (8.0, 0)
