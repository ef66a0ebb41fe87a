"""A running job's size, as its owner's wishes are measured against it: while it changes it has none."""

from dataclasses import replace

import msgspec
import pytest

from policies.model.decision import Wait
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    Generation,
    GenerationState,
    Job,
    JobState,
    Member,
)
from scheduler.core.sizes import must_stop_to_change, out_of_range, size_of, why_out_of_range
from scheduler.core.state import State
from scheduler.protocol.messages import Phase, Report
from scheduler.protocol.spec import CheckpointSpec, JobSpec

SPEC = JobSpec(name="t", entrypoint="a:b", workdir="/", min_devices=1, max_devices=1)


def running(*lives: bool | None, **spec: object) -> tuple[State, Job]:
    """A training with a member for each: whether it has said that it can change live, or None for not a word."""
    state = State(epoch=1)
    job = Job(
        id=1, spec=msgspec.structs.replace(SPEC, **spec), spec_key="k", user="u", priority=50, submitted_us=0,
        state=JobState.ACTIVE, last_attempt=1,
    )  # fmt: skip
    state.jobs[1] = job
    state.attempts[1, 1] = Attempt(
        job=1, number=1, kind=AttemptKind.TRAIN, created_us=0, nonce="n", saved_step=None, state=AttemptState.RUNNING,
        running_us=1,
    )  # fmt: skip
    state.generations[1, 1, 1] = Generation(
        job=1, attempt=1, number=1, plan=None, ranks=tuple(range(len(lives))), state=GenerationState.ACTIVE
    )
    for number, live in enumerate(lives):
        state.members[1, 1, number] = Member(job=1, attempt=1, number=number, node="n", device=f"d{number}")
        if live is not None:
            said = Report(job=1, attempt=1, member=number, seq=1, generation=1, phase=Phase.TRAINING, live=live)
            state.reports[1, 1, number] = said
    return state, job


@pytest.mark.parametrize(
    ("lives", "size"), [((True, True), 2), ((False, False), 2), ((True, None), None), ((True, False), None)]
)
def test_it_has_a_size_once_all_or_none_of_its_members_can_change_live(lives, size) -> None:
    state, job = running(*lives)
    assert size_of(state, job) == size
    assert out_of_range(state, job) is (size is not None)


def test_a_job_that_changes_has_no_size_until_it_has() -> None:
    state, job = running(True, True)
    state.generations[1, 1, 2] = replace(state.generations[1, 1, 1], number=2, state=GenerationState.PROPOSED)
    assert size_of(state, job) is None


def test_one_whose_live_change_failed_and_that_writes_no_checkpoints_keeps_its_work_and_says_so() -> None:
    state, job = running(True, True)
    assert not must_stop_to_change(state, job)
    state.stops_to_change[1] = 1
    assert must_stop_to_change(state, job)
    assert not out_of_range(state, job)
    assert "writes no checkpoints" in why_out_of_range(state, job).text
    state, job = running(True, True, checkpoint=CheckpointSpec(dir="/c"))
    state.stops_to_change[1] = 1
    assert out_of_range(state, job)


def test_the_reason_is_what_the_last_pass_said() -> None:
    state, job = running(True, True)
    assert why_out_of_range(state, job) is None
    state.unmet[1] = Wait(1, "OutOfRange", "nothing is free")
    assert why_out_of_range(state, job) == state.unmet[1]
