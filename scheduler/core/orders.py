"""What can be ordered of a job besides cancelling and holding: requeue, signal, save, preempt, go to the top."""

from dataclasses import replace

from scheduler.core.effects import Reply
from scheduler.core.endings import stop_attempt
from scheduler.core.entities import Attempt, AttemptState, EndCause, Job, JobState, Wanted
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Order, Verb
from scheduler.core.turn import Turn

_NOTED = {Verb.REQUEUE: "Requeued", Verb.PREEMPT: "Preempted"}


def order(turn: Turn, event: Order) -> None:
    """Every order is answered once; those that make no sense for the job's state are a CONFLICT."""
    job = turn.state.jobs.get(event.job)
    if job is None:
        error = JctError(Code.NOT_FOUND, f"there is no job {event.job}", hint="list yours with: jct ls -a")
        turn.out.replies.append(Reply(event.request, error=error))
        return
    if (why := _obey(turn, event, job)) is not None:
        turn.out.replies.append(Reply(event.request, error=JctError(Code.CONFLICT, f"job {job.id} {why}")))
    else:
        turn.out.replies.append(Reply(event.request, job.id))


def _obey(turn: Turn, event: Order, job: Job) -> str | None:
    if job.state is JobState.DONE:
        return f"has already ended ({job.result})"
    if event.verb is Verb.TOP:
        return _to_top(turn, event, job)
    attempt = turn.state.open_attempt(job.id)
    if attempt is None:
        return "is not running"
    if attempt.state is AttemptState.STOPPING or job.wanted is not Wanted.RUN:
        return "is stopping already"
    match event.verb:
        case Verb.REQUEUE | Verb.PREEMPT:
            _stop(turn, event, job)
            return None
        case Verb.CHECKPOINT:
            return _save(turn, event, job, attempt)
        case _:
            return _signal(turn, event, job, attempt)


def _stop(turn: Turn, event: Order, job: Job) -> None:
    """Both save and queue again; a preemption is counted as one."""
    cause = EndCause.PREEMPTED if event.verb is Verb.PREEMPT else EndCause.REQUEUED
    why = f"{_NOTED[event.verb].lower()} by {event.actor}"
    stop_attempt(turn, job, cause, grace_s=job.spec.grace_s, save=True, why=why, by=event.actor)
    turn.replan()


def _save(turn: Turn, event: Order, job: Job, attempt: Attempt) -> str | None:
    if job.spec.checkpoint is None:
        return "has no checkpoint directory, so there is nowhere to save"
    if attempt.state is not AttemptState.RUNNING:
        return "has not begun to train"
    turn.put(replace(attempt, save_no=attempt.save_no + 1))
    turn.note("SaveRequested", f"by {event.actor}", actor=event.actor, job=job.id, attempt=attempt.number)
    return None


def _signal(turn: Turn, event: Order, job: Job, attempt: Attempt) -> str | None:
    if attempt.state is not AttemptState.RUNNING:
        return "has no running processes yet"
    turn.put(replace(attempt, signal_no=attempt.signal_no + 1, signal=event.signal))
    text = f"{event.signal} by {event.actor}"
    turn.note("Signalled", text, actor=event.actor, job=job.id, attempt=attempt.number)
    return None


def _to_top(turn: Turn, event: Order, job: Job) -> str | None:
    """Before all that wait in its queue: their highest priority, and an earlier place than any of them."""
    if job.state is not JobState.QUEUED:
        return "does not wait"
    others = [
        other for other in turn.state.jobs.values()
        if other.state is JobState.QUEUED and other.spec.queue == job.spec.queue and other.id != job.id
    ]  # fmt: skip
    priority = max([job.priority, *(other.priority for other in others)])
    first = min([job.submitted_us, *(other.place_us - 1 for other in others)])
    data = {"old": job.priority, "new": priority}
    turn.put(replace(job, priority=priority, first_us=first))
    turn.note("MovedToTop", f"by {event.actor}", actor=event.actor, job=job.id, data=data)
    turn.replan()
    return None
