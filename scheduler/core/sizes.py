"""How many devices a job has, and whether its owner still wants that."""

from scheduler.core.entities import AttemptKind, AttemptState, Job, Wanted
from scheduler.core.state import State


def size_of(state: State, job: Job) -> int | None:
    """Of the shape in which a job trains; None where it does not, or is about to have another."""
    attempt = state.open_attempt(job.id)
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.kind is not AttemptKind.TRAIN:
        return None
    generation = state.generation_of(job.id, attempt.number)
    if generation is None or state.proposed(job.id, attempt.number) is not None:
        return None
    return len(generation.ranks)


def out_of_range(state: State, job: Job) -> bool:
    """It trains on a number of devices that its owner no longer allows, and nothing keeps it from changing now."""
    size = size_of(state, job)
    return size is not None and job.wanted is Wanted.RUN and not job.spec.allows(size)
