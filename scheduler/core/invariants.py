"""What must hold after every step, checked on the whole state. An empty list is good news."""

from collections.abc import Iterator

from scheduler.core.caps import exceeded
from scheduler.core.entities import AttemptState, JobState, LeaseState
from scheduler.core.lease_index import LeaseIndex
from scheduler.core.state import State

_OWNING = (LeaseState.HELD, LeaseState.QUARANTINED)


def violations(state: State) -> list[str]:
    """Sentences that say what is wrong."""
    return [*_leases(state), *_jobs(state), *_gangs(state), *exceeded(state)]


def _leases(state: State) -> Iterator[str]:
    if state.lease_index != LeaseIndex.over(state.leases.values()):
        yield "the index of the leases is not theirs"
    owner: dict[str, int] = {}
    promised: dict[str, int] = {}
    for lease in state.leases.values():
        book = owner if lease.state in _OWNING else promised
        if lease.device in book:
            yield f"device {lease.device} has leases {book[lease.device]} and {lease.id}, both {lease.state}"
        book[lease.device] = lease.id
        member = state.members.get((lease.job, lease.attempt, lease.member))
        if member is None or member.device != lease.device:
            yield f"lease {lease.id} fits no member"
        elif lease.state in _OWNING and member.gone_us is not None:
            yield f"lease {lease.id} is {lease.state} though its member is gone"


def _jobs(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        attempts = [attempt for (owner, _), attempt in state.attempts.items() if owner == job.id]
        running = [attempt.number for attempt in attempts if attempt.state is not AttemptState.ENDED]
        if job.state is JobState.ACTIVE and running != [job.last_attempt]:
            yield f"job {job.id} is ACTIVE with open attempts {running}, its last is {job.last_attempt}"
        if job.state is not JobState.ACTIVE and running:
            yield f"job {job.id} is {job.state} with open attempts {running}"
        if (job.state is JobState.DONE) != (job.result is not None):
            yield f"job {job.id} is {job.state} with result {job.result}"


def _gangs(state: State) -> Iterator[str]:
    for attempt in state.attempts.values():
        if attempt.state is AttemptState.ENDED:
            continue
        name = f"attempt {attempt.job}.{attempt.number}"
        leases = {lease.member: lease.state for lease in state.leases_of(attempt.job, attempt.number)}
        for member in state.members_of(attempt.job, attempt.number):
            held = leases.get(member.number) in _OWNING
            if attempt.state is AttemptState.GATHERING:
                if member.number not in leases:
                    yield f"{name} gathers without a lease for member {member.number}"
            elif held != (member.gone_us is None) and not state.awaits_device(member):
                yield f"{name} is {attempt.state}: member {member.number} gone={member.gone_us} held={held}"
        if attempt.state is AttemptState.GATHERING and all(found is LeaseState.HELD for found in leases.values()):
            yield f"{name} gathers though it holds all"
