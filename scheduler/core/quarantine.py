"""A process that SIGKILL does not end keeps its device from everybody, and nobody from going on (LIFECYCLE 38).

Its lease is QUARANTINED until its node reports it gone. Its attempt ends without it; who was promised the device is
queued again and looks for another.
"""

from dataclasses import replace

from scheduler.core.endings import end_if_gone, stop_attempt
from scheduler.core.entities import AttemptState, EndCause, LeaseState, Member
from scheduler.core.turn import Turn


def quarantine(turn: Turn, member: Member) -> None:
    """Once for each member; later reports of the same change nothing."""
    state = turn.state
    held = [lease for lease in state.leases_of(member.job, member.attempt) if lease.member == member.number]
    for lease in held:
        if lease.state is not LeaseState.HELD:
            continue
        turn.put(replace(lease, state=LeaseState.QUARANTINED))
        text = f"a process of job {member.job} cannot be killed; device {lease.device} is kept back until it is gone"
        turn.note("Quarantined", text, job=member.job, attempt=member.attempt, node=member.node)
        _disappoint(turn, lease.device)
    job = state.jobs.get(member.job)
    attempt = state.attempts[member.job, member.attempt]
    if job is not None and attempt.state in (AttemptState.STARTING, AttemptState.RUNNING):
        why = f"member {member.number} on {member.node} cannot be killed"
        stop_attempt(turn, job, None, grace_s=0.0, save=False, why=why)
    end_if_gone(turn, member.job, member.attempt)
    turn.replan()


def _disappoint(turn: Turn, device: str) -> None:
    """Gangs that wait for the device would wait for ever."""
    for lease in turn.state.leases_on(device):
        attempt = turn.state.attempts[lease.job, lease.attempt]
        waits = lease.state is LeaseState.PROMISED and attempt.state is AttemptState.GATHERING
        if waits:
            why = f"device {device}, which was promised, is in quarantine"
            stop_attempt(turn, turn.state.jobs[lease.job], EndCause.REQUEUED, grace_s=0.0, save=False, why=why)
