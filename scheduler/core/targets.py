"""What each node's members shall be: a pure function of the state (LIFECYCLE 46)."""

from scheduler.core.entities import Attempt, AttemptState, GenerationState, Job, Member
from scheduler.core.settings import CoreSettings
from scheduler.core.state import Role, State
from scheduler.protocol.messages import Run, Stop, Target
from scheduler.protocol.spec import AttemptSpec


def targets_of(state: State, node: str, settings: CoreSettings) -> tuple[Target, ...]:
    """All members the node shall have. A member leaves once its end is in the database."""
    return tuple(
        _target(state, member, attempt, settings)
        for member in state.members.values()
        if member.node == node
        and member.gone_us is None
        and (attempt := state.attempts[member.job, member.attempt]).state is not AttemptState.GATHERING
        and not _waits(state, member)
    )


def _waits(state: State, member: Member) -> bool:
    """A newcomer whose generation still lacks a device."""
    proposed = state.proposed(member.job, member.attempt)
    return proposed is not None and state.role(member) is Role.NEWCOMER and not state.gathered(proposed)


def _target(state: State, member: Member, attempt: Attempt, settings: CoreSettings) -> Target:
    generation = state.aimed(member.job, member.attempt)
    assert generation is not None
    return Target(
        job=member.job, attempt=member.attempt, member=member.number, device=member.device,
        want=_want(state, member, attempt), spec=_spec(state.jobs[member.job], attempt, settings),
        generation=generation.number, plan=generation.plan, ranks=generation.ranks, pilot=generation.pilot,
        store=attempt.store,
    )


def _want(state: State, member: Member, attempt: Attempt) -> Run | Stop:
    if _was_dropped(state, member):
        return Stop(grace_s=0.0, why="its generation was dropped", save=False)
    match attempt.state:
        case AttemptState.STARTING | AttemptState.RUNNING:
            return Run()
        case AttemptState.STOPPING:
            return Stop(grace_s=attempt.stop_grace_s or 0.0, why=attempt.stop_why, save=attempt.stop_save)
        case _:  # ended while its node was lost: what is left there is a late owner
            return Stop(grace_s=0.0, why=attempt.message or "the attempt has ended", save=False)


def _was_dropped(state: State, member: Member) -> bool:
    """It came for a generation that was dropped. Who was in one that ran leaves by itself."""
    if state.role(member) is not Role.PAST:
        return False
    ran = (GenerationState.ACTIVE, GenerationState.CLOSED)
    mine = [one for one in state.generations_of(member.job, member.attempt) if member.number in one.ranks]
    return not any(one.state in ran for one in mine)


def _spec(job: Job, attempt: Attempt, settings: CoreSettings) -> AttemptSpec:
    return AttemptSpec(
        kind=attempt.kind, job=job.spec, nonce=attempt.nonce, saved_step=attempt.saved_step,
        spec_key=job.spec_key, fingerprint=job.fingerprint,
        start_timeout_s=settings.start_timeout_s, probe_timeout_s=settings.probe_timeout_s,
    )
