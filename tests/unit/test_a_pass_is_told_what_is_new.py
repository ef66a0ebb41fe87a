"""A question to the policy's process holds the jobs that it does not know, or not so."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import devices, job, snapshot

from scheduler.pass_question import Heard, Question, Told

DEVICES = devices()


def over_the_wire(question: Question) -> Question:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=Question)


@given(st.lists(st.lists(st.tuples(st.integers(1, 6), st.booleans()), unique_by=lambda it: it[0]), max_size=8))
def test_whatever_comes_changes_and_goes_the_snapshot_arrives_as_it_was(passes: list[list[tuple[int, bool]]]) -> None:
    told, heard, views = Told(), Heard(), {}
    for number, jobs in enumerate(passes):
        for id, changes in jobs:
            if changes or id not in views:
                views[id] = replace(job(id), remaining_steps=number + 1)
        whole = snapshot([views[id] for id, _ in jobs], DEVICES, now_us=number)
        assert heard.snapshot(over_the_wire(told.question(whole, 1))) == whole


def test_jobs_that_look_as_before_are_not_told_again() -> None:
    told, jobs = Told(), [job(id) for id in range(1, 101)]
    assert told.question(snapshot(jobs, DEVICES), 1).snapshot.jobs == tuple(jobs)
    jobs[7] = replace(jobs[7], remaining_steps=3)
    question = told.question(snapshot(jobs, DEVICES), 1)
    assert (question.snapshot.jobs, question.jobs) == ((jobs[7],), tuple(range(1, 101)))


def test_a_question_that_was_missed_is_never_answered_with_half_a_snapshot() -> None:
    told, whole = Told(), snapshot([job(1)], DEVICES)
    told.question(whole, 1)
    with pytest.raises(KeyError):
        Heard().snapshot(told.question(whole, 1))
