"""Optimizers whose state is in their parameter groups train the same through resumes, resizes and moves of layers."""

import pytest
from gang import Site, curve, log, plan

from scheduler.protocol.messages import Cause
from worker.launcher import Launched

ONE, TWO, THREE = (0, 6), (0, 3, 6), (0, 2, 4, 6)


@pytest.fixture
def alone(site: Site) -> dict[int, tuple[str, str]]:
    launched = site.launch(plan(ONE), site.spec(entrypoint="counting:job", directory=None))
    return curve(finished(launched))


def finished(launched: Launched) -> Launched:
    launched.wait()
    assert launched.pilot.cause is Cause.FINISHED, log(launched)
    launched.hang_up()
    return launched


def test_a_resume_on_another_shape_changes_no_bit(site: Site, alone: dict) -> None:
    parts = [
        finished(site.launch(plan(shape), site.spec(entrypoint="counting:job", arguments={"steps": steps})))
        for steps, shape in ((4, TWO), (8, THREE), (12, ONE))
    ]
    assert parts[-1].pilot.resumed_step == 8
    assert curve(*parts) == alone


def test_layers_that_go_to_other_members_bring_everything_along(site: Site, alone: dict) -> None:
    """Beside a step, from 2 stages to 2; and at a boundary, to 3 stages and to one."""
    spec = site.spec(entrypoint="counting:job", directory=None, hold_at=(3, 6, 9))
    launched = site.launch(plan(TWO), spec)
    for number, shape in enumerate(((0, 1, 6), THREE, ONE), start=2):
        launched.wait(Launched.is_running)
        launched.change(plan(shape))
        launched.wait(Launched.is_running)
        assert launched.pilot.generation == number
    assert curve(finished(launched)) == alone


def test_an_optimizer_whose_groups_cannot_be_carried_ends_the_job_at_its_first_step(site: Site) -> None:
    launched = site.launch(plan(TWO), site.spec(entrypoint="counting:remembering"))
    launched.wait()
    guilty = [report for report in launched.reports.values() if report.cause is Cause.NOT_SUPPORTED]
    assert guilty, log(launched)
    assert "param_groups[0]['history'] (list) changes while it steps" in guilty[0].message
    assert not list(site.checkpoints.glob("step-*"))
