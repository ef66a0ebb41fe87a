"""Keeps memory bounded: of jobs that have ended only the newest stay; the database has the rest of history."""

from collections.abc import Collection

from scheduler.core.entities import AttemptState, Job, JobState, Moment
from scheduler.core.settings import CoreSettings, us
from scheduler.core.state import State


def forget_old_jobs(state: State, now: int, settings: CoreSettings) -> None:
    """All beyond `jobs_kept`, the first that ended first, and those that the database may soon forget. Who still holds
    anything stays.
    """
    done = [job for job in state.jobs.values() if job.state is JobState.DONE]
    surplus = max(0, len(done) - settings.jobs_kept)
    limit = now - us(settings.retention_s) if settings.retention_s is not None else 0
    if surplus:
        done.sort(key=_ended_us)
    for place, job in enumerate(done):
        if place < surplus or _ended_us(job) < limit:
            _forget(state, job)
    for key in list(state.keys)[: max(0, len(state.keys) - settings.keys_kept)]:
        del state.keys[key]


def forget_keys(state: State, jobs: Collection[int]) -> None:
    """Idempotency keys of jobs that are nowhere any more: the same key makes a new one."""
    gone = set(jobs)
    for key in [key for key, job in state.keys.items() if job in gone]:
        del state.keys[key]


def _ended_us(job: Job) -> int:
    return job.ended_us or 0


def _forget(state: State, job: Job) -> None:
    attempts = [(job.id, number) for number in range(1, job.last_attempt + 1) if (job.id, number) in state.attempts]
    members = [member for _, number in attempts for member in state.members_of(job.id, number)]
    if any(state.attempts[key].state is not AttemptState.ENDED for key in attempts):
        return
    if any(member.gone_us is None for member in members):
        return
    for member in members:
        key = (member.job, member.attempt, member.number)
        del state.members[key]
        state.reports.pop(key, None)
    for attempt in attempts:
        del state.attempts[attempt]
        for generation in state.generations_of(*attempt):
            del state.generations[(*attempt, generation.number)]
    state.known.pop(state.jobs.pop(job.id).spec_key, None)
    for moment in Moment:
        state.estimates.pop((job.id, moment), None)
    for book in (state.start_at_us, state.changed_us, state.stops_to_change, state.took, state.views):
        book.pop(job.id, None)
