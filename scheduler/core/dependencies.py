"""Jobs that wait for others. It is decided in the very step in which the other ends: they go on, or end as well.

`ok` wants the other to complete; `any` only to end. A job whose parent did not complete is CANCELLED, with the reason
DependencyFailed, and so in turn are those that wait for it with `ok`.
"""

from dataclasses import replace

from scheduler.core.endings import finish_queued
from scheduler.core.entities import Job, JobState, Result
from scheduler.core.obstacles import UNSEEN, obstacle_of_its_own
from scheduler.core.records import Secret
from scheduler.core.turn import Turn

_DONE = Result.COMPLETED
Waits = tuple[tuple[int, str], ...]
"""Jobs, each with `ok` or `any`."""


def follow_ends(turn: Turn) -> None:
    """For every job that ended in this step: those that wait for it are decided, its secrets go."""
    seen = 0
    while seen < len(turn.out.rows):
        entity = turn.out.rows[seen]
        seen += 1
        if isinstance(entity, Job) and entity.state is JobState.DONE:
            if turn.state.secrets.pop(str(entity.id), None) is not None:
                turn.out.gone_records.append((Secret.kind, str(entity.id)))
            for job in [job for job in turn.state.jobs.values() if job.state is JobState.QUEUED]:
                if any(parent == entity.id for parent, _ in job.waits_for):
                    _decide(turn, job, entity.id, entity.result)


def _decide(turn: Turn, job: Job, parent: int, result: Result | None) -> None:
    left = tuple(wait for wait in job.waits_for if wait[0] != parent)
    strict = any(how == "ok" for other, how in job.waits_for if other == parent)
    job = replace(job, waits_for=left)
    if job.reason_code == "Dependency":
        code, reason = obstacle_of_its_own(job, turn.now) or UNSEEN
        job = replace(job, reason_code=code, reason=reason, reason_since_us=turn.now)
    turn.put(job)
    if strict and result is not _DONE:
        fail(turn, job, parent, str(result))
    else:
        turn.note("DependencyMet", f"job {parent} has ended ({result})", job=job.id)
        turn.replan()


def fail(turn: Turn, job: Job, parent: int, result: str) -> None:
    why = f"job {parent}, which had to complete first, ended as {result}"
    finish_queued(turn, job, Result.CANCELLED, why, "jctd", code="DependencyFailed")


def unmet(turn: Turn, after: Waits, past: dict[int, str]) -> tuple[Waits, tuple[int, str] | None]:
    """The jobs still to wait for, and the first that has already failed, with its result.

    past: results of jobs that have left memory. Raises KeyError for a job that is in neither.
    """
    waits: list[tuple[int, str]] = []
    for parent, how in after:
        job = turn.state.jobs.get(parent)
        result = str(job.result) if job is not None and job.result is not None else past.get(parent)
        if job is None and result is None:
            raise KeyError(parent)
        if result is None:
            waits.append((parent, how))
        elif how == "ok" and result != _DONE:
            return (), (parent, result)
    return tuple(waits), None
