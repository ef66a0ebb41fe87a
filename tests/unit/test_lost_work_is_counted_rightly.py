"""Seconds of training that no checkpoint kept: none of an attempt that finished, and later checkpoints mend nothing."""

from scheduler.api.views import used_by
from scheduler.core.accounts import lost_s
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, EndCause, Job, Member
from scheduler.core.settings import US
from scheduler.core.story import Story
from scheduler.protocol.spec import JobSpec

SPEC = JobSpec(name="a", entrypoint="m:f", workdir="/w")


def attempt(number: int, cause: EndCause, *, resumed: int, last: int, saved: int | None = None) -> Attempt:
    """100 s of training; saved: the newest checkpoint when it began."""
    begun = number * 1_000 * US
    return Attempt(
        job=1, number=number, kind=AttemptKind.TRAIN, created_us=begun, state=AttemptState.ENDED, cause=cause,
        starting_us=begun, running_us=begun, stopping_us=begun + 100 * US, ended_us=begun + 100 * US,
        saved_step=saved, resumed_step=resumed, last_step=last,
    )  # fmt: skip


def test_steps_after_the_last_checkpoint_are_lost():
    assert lost_s(attempt(1, EndCause.RANK_LOST, resumed=0, last=100), 60) == 40.0
    assert lost_s(attempt(1, EndCause.RANK_LOST, resumed=0, last=100), None) == 100.0


def test_an_attempt_that_finished_lost_nothing_without_any_checkpoint():
    assert lost_s(attempt(1, EndCause.FINISHED, resumed=0, last=100), None) == 0.0


def test_what_a_later_attempt_saved_does_not_make_an_earlier_loss_good():
    first = attempt(1, EndCause.RANK_LOST, resumed=0, last=100)
    second = attempt(2, EndCause.FINISHED, resumed=60, last=200, saved=60)
    job = Job(id=1, spec=SPEC, user="u", priority=1, submitted_us=0, saved_step=200)
    members = tuple(Member(job=1, attempt=n, number=0, node="n", device="d") for n in (1, 2))
    used = used_by(Story(job=job, attempts=(first, second), members=members), 0)
    assert used == {"gpu_s": 200.0, "lost_gpu_s": 40.0}
