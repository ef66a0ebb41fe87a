"""A pipeline whose stages do not train alike stops in the step where they differ, and says which and how."""

import pytest
from gang import Site, metrics, plan

from scheduler.protocol.messages import Cause

BUGS = {
    "a_rate_of_an_eighth_on_the_first_stage": "learning rates differ: 0.00025 on stage 0, 0.002 on stage 1",
    "an_optimizer_that_rests_now_and_then": "optimizer steps differ: 1 on stage 0, 0 on stage 1",
    "a_microbatch_that_is_not_accumulated": "stage 0 accumulated 3 micro-batches of 4",
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_on_one_stage_ends_the_job_and_is_told(site: Site, bug: str) -> None:
    spec = site.spec(entrypoint=f"bugs:{bug}", directory=None, arguments={"clip": None})
    launched = site.launch(plan((0, 3, 6)), spec)
    launched.wait()
    assert launched.pilot.cause is Cause.USER_EXCEPTION
    assert BUGS[bug] in launched.pilot.message
    assert len([line for line in metrics(launched) if "loss" in line]) < 4
