"""The parts of a job's completion time sum exactly to the whole, whatever the attempts' stamps."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.entities import Attempt, AttemptKind, EndCause, Job
from scheduler.core.ledger import Ledger, ledger
from scheduler.protocol.spec import JobSpec

SPEC = JobSpec(name="a", entrypoint="m:f", workdir="/w")
MOMENT = st.integers(0, 10_000)
MAYBE = st.none() | MOMENT


def job(ended_us: int | None = None) -> Job:
    return Job(id=1, spec=SPEC, user="u", priority=1, submitted_us=100, ended_us=ended_us)


def attempt(number: int, kind: AttemptKind, *stamps: int | None, cause: EndCause | None = None) -> Attempt:
    created, starting, running, stopping, ended = stamps
    return Attempt(
        job=1, number=number, kind=kind, created_us=created or 0, starting_us=starting, running_us=running,
        stopping_us=stopping, ended_us=ended, cause=cause,
    )  # fmt: skip


ATTEMPTS = st.lists(
    st.builds(
        attempt, st.just(1), st.sampled_from(AttemptKind), MOMENT, MAYBE, MAYBE, MAYBE, MAYBE,
        cause=st.none() | st.sampled_from(EndCause),
    ),
    max_size=6,
)


@given(ATTEMPTS, MAYBE, MOMENT)
def test_the_parts_are_never_negative_and_sum_to_the_whole(attempts, ended_us, now_us):
    found = ledger(job(ended_us), attempts, now_us)
    assert found.total_us == max(0, (now_us if ended_us is None else ended_us) - 100)
    parts = (found.queueing_us, found.startup_us, found.training_us, found.preemptions_us, found.cleanup_us)
    assert min(parts) >= 0


def test_each_stretch_goes_to_its_part():
    attempts = [
        attempt(1, AttemptKind.PROBE, 110, 110, 120, 130, 140),
        attempt(2, AttemptKind.TRAIN, 150, 160, 200, 500, 520),
        attempt(3, AttemptKind.TRAIN, 600, 610, 640, 900, 930),
    ]
    assert ledger(job(930), attempts, 99_999) == Ledger(
        queueing_us=10 + 10 + 10 + 80 + 10, startup_us=20 + 40 + 30, training_us=300 + 260, cleanup_us=10 + 20 + 30
    )


def test_a_job_that_never_ran_only_queued():
    assert ledger(job(), [], 1_100) == Ledger(queueing_us=1_000)


def test_time_that_still_runs_is_counted_to_now():
    assert ledger(job(), [attempt(1, AttemptKind.TRAIN, 200, 200, 300, None, None)], 1_000).training_us == 700


def test_what_a_preemption_costs_is_its_own_part():
    attempts = [
        attempt(1, AttemptKind.TRAIN, 110, 120, 140, 500, 520, cause=EndCause.PREEMPTED),
        attempt(2, AttemptKind.TRAIN, 600, 610, 640, 900, 930, cause=EndCause.FINISHED),
    ]
    assert ledger(job(930), attempts, 99_999) == Ledger(
        queueing_us=20, startup_us=20, training_us=360 + 260, preemptions_us=640 - 500, cleanup_us=30
    )
