"""How attempts stop and end, and how their devices come free."""

from dataclasses import replace

from scheduler.core.accounts import charge
from scheduler.core.beginnings import begin, unavailable
from scheduler.core.caps import any_caps, too_much, use_of
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    EndCause,
    GenerationState,
    Job,
    JobState,
    LeaseState,
    Member,
    NodeState,
    Result,
    Wanted,
)
from scheduler.core.leases import drop_generation, drop_members
from scheduler.core.outcome import after_attempt, blame, by_verdict, exit_verdict
from scheduler.core.settings import us
from scheduler.core.state import Role
from scheduler.core.turn import Turn

_GENERATION_END = {
    GenerationState.PROPOSED: GenerationState.DROPPED,
    GenerationState.ACTIVE: GenerationState.CLOSED,
}

_NOTHING_TO_SAVE = (
    EndCause.CANCELLED, EndCause.HELD, EndCause.PREEMPTED, EndCause.REQUEUED, EndCause.START_FAILED,
)  # while STARTING


def finish_queued(turn: Turn, job: Job, result: Result, why: str, by: str, code: str = "") -> None:
    """A job that holds nothing is over at once. code: the reason's, where it is not the result."""
    done = replace(
        job, state=JobState.DONE, result=result, ended_us=turn.now, ended_by=by,
        reason_code=code or str(result), reason=why, reason_since_us=turn.now,
    )
    turn.put(done)
    turn.note("Ended", f"{result}: {why}", actor=by, job=job.id)


def stop_attempt(
    turn: Turn, job: Job, cause: EndCause | None, *, grace_s: float, save: bool, why: str, by: str = "jctd"
) -> None:
    """Order the job's open attempt to stop. A second order never lengthens the first one's grace (LIFECYCLE 39).

    cause is None where the members' own ends will tell it.
    """
    attempt = turn.state.open_attempt(job.id)
    if attempt is None:
        return
    match attempt.state:
        case AttemptState.GATHERING:
            _end(turn, job, attempt, cause or EndCause.RANK_LOST, why)
        case AttemptState.STOPPING:
            _shorten(turn, attempt, cause, grace_s, why, by)
        case _:
            if attempt.state is AttemptState.STARTING and cause in _NOTHING_TO_SAVE:
                grace_s, save = 0.0, False
            stopping = replace(
                attempt, state=AttemptState.STOPPING, stopping_us=turn.now, cause=cause,
                stop_grace_s=grace_s, stop_save=save, stop_why=why, stop_by=by,
            )
            turn.put(stopping)
            proposed = turn.state.proposed(job.id, attempt.number)
            if proposed is not None and not turn.state.gathered(proposed):  # one that is gathered stops like all others
                drop_generation(turn, proposed)
            turn.note("Stopping", why, actor=by, job=job.id, attempt=attempt.number)
            end_if_gone(turn, job.id, attempt.number)


def _shorten(turn: Turn, attempt: Attempt, cause: EndCause | None, grace_s: float, why: str, by: str) -> None:
    left_s = (attempt.stop_grace_s or 0.0) - (turn.now - (attempt.stopping_us or turn.now)) / 1e6
    shorter = grace_s < left_s
    if not shorter and attempt.cause is not None:
        return
    turn.put(
        replace(
            attempt, cause=attempt.cause or cause, stop_why=why, stop_by=by,
            stop_grace_s=grace_s if shorter else attempt.stop_grace_s,
            stop_save=attempt.stop_save and not shorter,
        )
    )


def end_if_gone(turn: Turn, job_id: int, number: int) -> None:
    """STOPPING -> ENDED when every member is gone, its node LOST (its lease stays HELD until the node tells), or its
    device in quarantine."""
    attempt = turn.state.attempts.get((job_id, number))
    if attempt is None or attempt.state is not AttemptState.STOPPING:
        return
    members = turn.state.members_of(job_id, number)
    if any(member.gone_us is None and not _is_given_up(turn, member) for member in members):
        return
    accountable = [member for member in members if turn.state.role(member) is not Role.PAST]
    cause, guilty = blame(attempt.cause, accountable, attempt.kind is AttemptKind.COMMAND)
    verdict = exit_verdict(turn.state.jobs[job_id].spec.on_exit, attempt.cause, accountable)
    cause = by_verdict(verdict, cause)
    message = guilty.message if guilty is not None and guilty.message else attempt.stop_why
    _end(turn, turn.state.jobs[job_id], attempt, cause, message, guilty, verdict)


def _is_given_up(turn: Turn, member: Member) -> bool:
    node = turn.state.nodes.get(member.node)
    if node is not None and node.state is NodeState.LOST:
        return True
    leases = turn.state.leases_of(member.job, member.attempt)
    return any(lease.member == member.number and lease.state is LeaseState.QUARANTINED for lease in leases)


def _end(
    turn: Turn, job: Job, attempt: Attempt, cause: EndCause, message: str, guilty: Member | None = None,
    verdict: str = "",
) -> None:
    state = turn.state
    progress = state.progress.pop(job.id, None)
    state.step_at_us.pop(job.id, None)
    ended = replace(
        attempt, state=AttemptState.ENDED, cause=cause, message=message, ended_us=turn.now,
        last_step=progress.step if progress is not None else attempt.last_step,
    )
    turn.put(ended)
    job = charge(turn, job, ended)
    for generation in state.generations_of(job.id, attempt.number):
        if generation.state in _GENERATION_END:
            turn.put(replace(generation, state=_GENERATION_END[generation.state]))
    state.changing.pop(job.id, None)
    if attempt.state is AttemptState.GATHERING:
        drop_members(turn, state.members_of(attempt.job, attempt.number))
    data = {"cause": str(cause), "step": ended.last_step}
    text = f"{cause}: {message}" if message else str(cause)
    turn.note("AttemptEnded", text, job=job.id, attempt=attempt.number, data=data)
    _move_on(turn, job, ended, cause, message, guilty, verdict)


def _move_on(
    turn: Turn, job: Job, attempt: Attempt, cause: EndCause, message: str, guilty: Member | None, verdict: str
) -> None:
    if guilty is not None:
        job = replace(job, exit_code=guilty.exit_code, signal=guilty.signal)
    if cause is EndCause.START_FAILED and guilty is not None:
        avoid = tuple(node for node in job.avoid if node != guilty.node)
        job = replace(job, avoid=(*avoid, guilty.node)[-3:], avoid_until_us=turn.now + us(turn.settings.avoid_s))
    if cause is EndCause.PLAN_MISMATCH:  # what the key was measured for is another model now: probe under a fresh key
        job = replace(job, spec_key=f"{job.spec_key}+{attempt.number}", fingerprint=None)
    progressed = (job.saved_step or 0) > (attempt.resumed_step or 0)
    outcome = after_attempt(job, cause, message, progressed, turn.now, turn.settings, verdict)
    turn.put(outcome.job)
    if outcome.job.state is JobState.DONE:
        turn.note("Ended", outcome.text, job=job.id, actor=outcome.job.ended_by or "job")
    else:
        turn.note("Queued", outcome.text, job=job.id)
        _begin_resized(turn, outcome.job, cause)
    turn.state.resizing.pop(job.id, None)
    turn.replan()


def _begin_resized(turn: Turn, job: Job, cause: EndCause) -> None:
    """The promised next attempt of a job that stopped to be resized, if all its devices can still be had."""
    planned = turn.state.resizing.get(job.id)
    if planned is None or cause is not EndCause.RESIZED or job.wanted is not Wanted.RUN:
        return
    start, nonce = planned
    lacking = next((why for device in start.devices if (why := unavailable(turn.state, device, job.id))), None)
    if lacking is None and any_caps(turn.state):
        over = too_much(turn.state, use_of(turn.state), job, start.devices)
        lacking = over[1] if over is not None else None  # a cap was lowered meanwhile
    if lacking is None:
        begin(turn, start, nonce)
    else:
        turn.note("ResizeDropped", lacking, job=job.id)
