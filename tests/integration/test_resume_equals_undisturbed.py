"""A job that was stopped and resumed on another shape has the loss curve of the job left alone."""

import math

import pytest
from gang import Site, curve, log, metrics, plan

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.protocol.messages import Cause, Phase
from worker.launcher import Launched

ONE, TWO, THREE = (0, 6), (0, 3, 6), (0, 2, 4, 6)


def run(site: Site, shape, **spec) -> Launched:
    launched = site.launch(shape, site.spec(**spec))
    launched.wait()
    assert all(report.cause is Cause.FINISHED for report in launched.reports.values()), log(launched)
    launched.hang_up()
    return launched


def run_until(site: Site, shape, step: int, **spec) -> Launched:
    """Train until `step` was reported, then stop with a save."""
    launched = site.launch(shape, site.spec(**spec))
    launched.wait(lambda it: len(it.reports) == it.size and (it.pilot.step or 0) >= step)
    launched.stop(grace_s=60)
    launched.wait()
    assert all(report.cause is Cause.STOPPED for report in launched.reports.values()), log(launched)
    assert launched.pilot.saved == launched.pilot.step
    launched.hang_up()
    return launched


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_b27_stages_change_nothing_not_even_the_last_bit(site: Site, schedule: str) -> None:
    arguments = {"steps": 150, "every": 50}
    alone = run(site, plan(ONE), directory=None, arguments=arguments)
    first = run_until(site, plan(ONE, schedule=schedule), 2, arguments=arguments)
    second = run_until(site, plan(TWO, schedule=schedule), (first.pilot.step or 0) + 2, arguments=arguments)
    third = run(site, plan(THREE, schedule=schedule), arguments=arguments)
    assert third.pilot.resumed_step == second.pilot.step
    assert curve(first, second, third) == curve(alone)
    assert third.pilot.last_evaluation == alone.pilot.last_evaluation
    assert third.pilot.first_evaluation == alone.pilot.first_evaluation


def test_b27_each_sample_is_trained_on_once_over_resizes(site: Site) -> None:
    first = run_until(site, plan(TWO), 3, arguments={"steps": 300})
    second = run(site, plan(ONE), arguments={"steps": 300})
    spans = [line["samples"] for launched in (first, second) for line in metrics(launched) if "samples" in line]
    assert [sample for start, end in spans for sample in range(start, end + 1)] == list(range(300 * 8))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("float64", 1e-10)])
@pytest.mark.parametrize(
    ("bounds", "changed"),
    [
        (ONE, {"microbatches": 2, "size": 4}),
        (TWO, {"shares": (2, 2)}),
        (ONE, {"shares": (3, 1)}),
    ],
    ids=["another micro-batch count", "replicas", "uneven replicas"],
)
def test_another_summation_order_stays_close(
    site: Site, precision: str, tolerance: float, bounds: tuple[int, ...], changed: dict
) -> None:
    arguments = {"steps": 20, "dropout": 0.0}
    alone = run(site, plan(ONE, precision=precision), directory=None, arguments=arguments)
    other = run(site, plan(bounds, precision=precision, **changed), directory=None, arguments=arguments)
    for wanted, found in zip(metrics(alone), metrics(other), strict=True):
        key = "loss" if "loss" in wanted else "validation_loss"
        assert math.isclose(wanted[key], found[key], rel_tol=tolerance), (wanted["step"], wanted[key], found[key])


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("float64", 1e-10)])
def test_stages_with_their_own_numbers_of_replicas(site: Site, precision: str, tolerance: float) -> None:
    arguments = {"steps": 20, "dropout": 0.0}
    alone = run(site, plan(ONE, precision=precision), directory=None, arguments=arguments)
    stages = (StagePlan(0, 3, (0, 1), (3, 1)), StagePlan(3, 6, (2,), (4,)))
    other = run(site, ParallelPlan(stages, 4, 2, "1f1b", precision), directory=None, arguments=arguments)
    for wanted, found in zip(metrics(alone), metrics(other), strict=True):
        key = "loss" if "loss" in wanted else "validation_loss"
        assert math.isclose(wanted[key], found[key], rel_tol=tolerance), wanted["step"]


def test_a_stop_during_start_up_ends_at_once(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 10**6}))
    launched.stop(grace_s=60)
    launched.wait()
    assert {report.cause for report in launched.reports.values()} <= {Cause.STOPPED, Cause.PEER_LOST}
    assert all(report.phase is Phase.GONE for report in launched.reports.values())


def test_a_checkpoint_asked_for_is_made_while_training_goes_on(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(arguments={"steps": 10**6}))
    launched.wait(lambda it: len(it.reports) == 2 and (it.pilot.step or 0) >= 1)
    launched.save()
    launched.wait(lambda it: it.pilot.saved is not None)
    saved = launched.pilot.saved
    assert saved is not None
    launched.wait(lambda it: (it.pilot.step or 0) > saved)
    launched.stop(grace_s=60)
    launched.wait()
    assert (site.checkpoints / f"step-{saved}" / "manifest.json").exists()
