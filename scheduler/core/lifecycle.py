"""Every allowed change of state, as tables. `State.put` refuses all others."""

from collections.abc import Mapping
from enum import StrEnum

from scheduler.core.entities import AttemptState, GenerationState, JobState, LeaseState

JOB: Mapping[StrEnum, tuple[StrEnum, ...]] = {
    JobState.QUEUED: (JobState.ACTIVE, JobState.DONE),
    JobState.ACTIVE: (JobState.QUEUED, JobState.DONE),
    JobState.DONE: (),
}

ATTEMPT: Mapping[StrEnum, tuple[StrEnum, ...]] = {
    AttemptState.GATHERING: (AttemptState.STARTING, AttemptState.ENDED),
    AttemptState.STARTING: (AttemptState.RUNNING, AttemptState.STOPPING),
    AttemptState.RUNNING: (AttemptState.STOPPING,),
    AttemptState.STOPPING: (AttemptState.ENDED,),
    AttemptState.ENDED: (),
}

GENERATION: Mapping[StrEnum, tuple[StrEnum, ...]] = {
    GenerationState.PROPOSED: (GenerationState.ACTIVE, GenerationState.DROPPED),
    GenerationState.ACTIVE: (GenerationState.CLOSED,),
    GenerationState.CLOSED: (),
    GenerationState.DROPPED: (),
}

LEASE: Mapping[StrEnum, tuple[StrEnum, ...]] = {
    LeaseState.PROMISED: (LeaseState.HELD, LeaseState.CLOSED),
    LeaseState.HELD: (LeaseState.CLOSED, LeaseState.QUARANTINED),
    LeaseState.QUARANTINED: (LeaseState.CLOSED,),
    LeaseState.CLOSED: (),
}


class ForbiddenTransition(AssertionError):
    """The core tried a change of state that its tables do not have. This is a bug, never a user's fault."""


def check(table: Mapping[StrEnum, tuple[StrEnum, ...]], old: StrEnum, new: StrEnum, what: str) -> None:
    """Raises ForbiddenTransition unless old is new or the table has old -> new."""
    if new is not old and new not in table[old]:
        raise ForbiddenTransition(f"{what}: {old} -> {new}")
