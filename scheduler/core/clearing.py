"""Reservations: when one begins, what does not belong there is stopped with a checkpoint; at its end it goes."""

from scheduler.core.endings import stop_attempt
from scheduler.core.entities import AttemptState, EndCause, Job, JobState
from scheduler.core.records import Reservation
from scheduler.core.reserved import in_force
from scheduler.core.state import State
from scheduler.core.turn import Turn


def clear(turn: Turn) -> None:
    """Stop what runs on reserved nodes and does not belong there; forget reservations that are over."""
    state = turn.state
    for item in list(in_force(state, turn.now)):
        for job in list(state.jobs.values()):
            if job.state is JobState.ACTIVE and job.spec.team != item.team and _is_on(state, job, item.nodes):
                why = f"its nodes are reserved ({item.name})"
                stop_attempt(turn, job, EndCause.PREEMPTED, grace_s=job.spec.grace_s, save=True, why=why, by=item.by)
    for name in [name for name, item in state.reservations.items() if item.until_us <= turn.now]:
        del state.reservations[name]
        turn.out.gone_records.append((Reservation.kind, name))
        turn.note("ReservationOver", f"reservation {name!r} is over")
        turn.replan()


def _is_on(state: State, job: Job, nodes: tuple[str, ...]) -> bool:
    attempt = state.open_attempt(job.id)
    if attempt is None or attempt.state is AttemptState.STOPPING:
        return False
    return any(member.node in nodes for member in state.members_of(job.id, attempt.number))
