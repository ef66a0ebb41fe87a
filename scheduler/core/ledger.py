"""Where a job's completion time went: queueing, start-up, training, preemptions, clean-up, cut only at commits of the
daemon.

The parts are intervals of one timeline that cover it without overlap, so that they sum exactly to the whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.core.entities import Attempt, AttemptKind, EndCause, Job

INTERRUPTED = (EndCause.PREEMPTED, EndCause.RESIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Microseconds. Gathering devices is queueing; a probe is start-up until it stops. preemptions: from the moment at
    which an attempt is stopped to make room, or to change its shape, until the next one trains."""

    queueing_us: int = 0
    startup_us: int = 0
    training_us: int = 0
    preemptions_us: int = 0
    cleanup_us: int = 0

    @property
    def total_us(self) -> int:
        return self.queueing_us + self.startup_us + self.training_us + self.preemptions_us + self.cleanup_us


def ledger(job: Job, attempts: Sequence[Attempt], now_us: int) -> Ledger:
    """From submission to the job's end, or to now while it lives. attempts: all of the job, oldest first."""
    start = job.submitted_us
    end = max(start, job.ended_us if job.ended_us is not None else now_us)
    sums = dict.fromkeys(("queueing_us", "startup_us", "training_us", "preemptions_us", "cleanup_us"), 0)
    at, part = start, "queueing_us"
    for cut_us, following in _cuts(attempts):
        cut_us = min(max(cut_us, at), end)
        sums[part] += cut_us - at
        at, part = cut_us, following
    sums[part] += end - at
    return Ledger(**sums)


def _cuts(attempts: Sequence[Attempt]) -> Iterator[tuple[int, str]]:
    """Moments, and what the time after each is."""
    interrupted = False
    for attempt in attempts:
        running = "startup_us" if attempt.kind is AttemptKind.PROBE else "training_us"
        before = [(attempt.created_us, "queueing_us"), (attempt.starting_us, "startup_us")]
        for moment_us, following in before:
            if moment_us is not None:
                yield moment_us, "preemptions_us" if interrupted else following
        if attempt.running_us is not None:
            yield attempt.running_us, running
            interrupted = False
        interrupted = interrupted or attempt.cause in INTERRUPTED
        for moment_us, following in ((attempt.stopping_us, "cleanup_us"), (attempt.ended_us, "queueing_us")):
            if moment_us is not None:
                yield moment_us, "preemptions_us" if interrupted else following
