"""How many devices a job has, whether its owner still wants that, and what keeps it from having another number."""

from policies.model.decision import Wait
from scheduler.core.entities import AttemptKind, AttemptState, Job, Wanted
from scheduler.core.state import State


def size_of(state: State, job: Job) -> int | None:
    """Of the shape in which a job trains; None where it does not, or is changing its shape, or where only some of its
    members have told yet that they can change it: it has just begun, or just changed."""
    attempt = state.open_attempt(job.id)
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.kind is not AttemptKind.TRAIN:
        return None
    key = (job.id, attempt.number)
    generation = state.generation_of(*key)
    if generation is None or state.proposed(*key) is not None:
        return None
    reports = (state.reports.get((*key, number)) for number in generation.ranks)
    some_can_change_live = {report is not None and report.live for report in reports}
    return len(generation.ranks) if len(some_can_change_live) == 1 else None


def must_stop_to_change(state: State, job: Job) -> bool:
    """Whether one of its members has said that it cannot change its shape while it trains, or such a change failed."""
    attempt = state.open_attempt(job.id)
    if attempt is None:
        return False
    present = state.present_members(job.id, attempt.number)
    reports = (state.reports.get((member.job, member.attempt, member.number)) for member in present)
    return _has_failed(state, job) or any(report is not None and not report.live for report in reports)


def out_of_range(state: State, job: Job) -> bool:
    """It trains on a number of devices that its owner no longer allows, and it can have another now."""
    return _is_unwanted(state, job) and not _would_lose_all(state, job)


def why_out_of_range(state: State, job: Job) -> Wait | None:
    """What keeps a running job from a size that its owner allows; None where nothing does."""
    if _is_unwanted(state, job) and _would_lose_all(state, job):
        text = "Its range is another now, but it could not change while it trained, and it writes no checkpoints."
        return Wait(job.id, "OutOfRange", text)
    return state.unmet.get(job.id)


def _is_unwanted(state: State, job: Job) -> bool:
    size = size_of(state, job)
    return size is not None and job.wanted is Wanted.RUN and not job.spec.allows(size)


def _would_lose_all(state: State, job: Job) -> bool:
    return job.spec.checkpoint is None and _has_failed(state, job)


def _has_failed(state: State, job: Job) -> bool:
    return state.stops_to_change.get(job.id) == job.last_attempt
