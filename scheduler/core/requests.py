"""What people ask for: submit, cancel, hold, release. Every request gets exactly one Reply."""

from dataclasses import replace

import msgspec

from scheduler.core.caps import too_many_pending
from scheduler.core.dependencies import unmet
from scheduler.core.effects import Reply
from scheduler.core.endings import finish_queued, stop_attempt
from scheduler.core.entities import EndCause, Job, JobState, Result, Wanted
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Cancel, Hold, Release, Submit
from scheduler.core.obstacles import UNSEEN, obstacle_of_its_own
from scheduler.core.records import Secret
from scheduler.core.turn import Turn


def submit(turn: Turn, event: Submit) -> None:
    """A new job, or one a task of an array, or the one that this user's idempotency key made before."""
    state = turn.state
    if event.key is not None and (known := state.keys.get((event.user, event.key))) is not None:
        turn.out.replies.append(Reply(event.request, known))
        return
    try:
        jobs = _new_jobs(turn, event)
    except JctError as error:
        turn.out.replies.append(Reply(event.request, error=error))
        return
    state.counters.job += len(jobs)
    for job in jobs:
        turn.put(job)
    first = jobs[0]
    if event.key is not None:
        state.keys[event.user, event.key] = first.id
        turn.out.idempotency.append((event.user, event.key, first.id))
    for job in jobs:
        if event.sealed:
            turn.put(Secret(name=str(job.id), sealed=event.sealed))
        turn.note("Submitted", f"{job.spec.name!r} with priority {job.priority}", actor=event.user, job=job.id)
    turn.out.replies.append(Reply(event.request, first.id))
    turn.replan()


def _new_jobs(turn: Turn, event: Submit) -> list[Job]:
    """Raises JctError where a cap, a used checkpoint directory or a job it waits for forbids them."""
    state, spec = turn.state, event.spec
    if spec.queue not in state.queues:
        raise JctError(Code.BAD_SPEC, f"there is no queue {spec.queue!r}", field="queue", hint="list them: jct queues")
    if (other := _same_checkpoints(turn, event)) is not None:
        what = f"its checkpoint.dir belongs to job {other.id}, which has not ended"
        hint = "two jobs would overwrite each other there: name another directory, or wait"
        raise JctError(Code.CONFLICT, what, hint=hint)
    try:
        waits_for, failed = unmet(turn, spec.after, dict(event.past))
    except KeyError as error:
        raise JctError(Code.BAD_SPEC, f"after: there is no job {error}", field="after") from None
    if failed is not None:
        what = f"after: job {failed[0]} has already ended as {failed[1]}, so this one could never start"
        raise JctError(Code.BAD_SPEC, what, field="after", hint="use `any` to wait for its end only")
    job = Job(
        id=state.counters.job, spec=spec, user=event.user, priority=spec.priority,
        submitted_us=turn.now, spec_key=event.spec_key, total_steps=spec.total_steps,
        global_batch=spec.global_batch, microbatch_size=spec.microbatch_size, waits_for=waits_for,
        reason_since_us=turn.now,
    )
    code, reason = obstacle_of_its_own(job, turn.now) or UNSEEN
    job = replace(job, reason_code=code, reason=reason)
    if (why := too_many_pending(state, job, max(1, len(spec.array)))) is not None:
        raise JctError(Code.QUOTA, why, hint="wait until some have started, or cancel some")
    return [task_of(job, number, task) for number, task in enumerate(spec.array)] or [job]


def task_of(job: Job, number: int, task: int) -> Job:
    """One task of an array: it knows its index, and has a checkpoint directory of its own."""
    spec = job.spec
    env = {**spec.env, "JCT_ARRAY_JOB_ID": str(job.id), "JCT_ARRAY_TASK_ID": str(task)}
    checkpoint = spec.checkpoint
    if checkpoint is not None:
        checkpoint = msgspec.structs.replace(checkpoint, dir=task_dir(checkpoint.dir, task))
    spec = msgspec.structs.replace(spec, env=env, checkpoint=checkpoint, array=())
    return replace(job, id=job.id + number, array=job.id, task=task, spec=spec)


def task_dir(dir: str, task: int) -> str:
    """Where one task of an array keeps its checkpoints."""
    return f"{dir}/task-{task}"


def _same_checkpoints(turn: Turn, event: Submit) -> Job | None:
    """A job that has not ended and keeps its checkpoints in the same directory: each would fence the other there."""
    if (asked := event.spec.checkpoint) is None:
        return None
    dirs = {asked.dir, *(task_dir(asked.dir, task) for task in event.spec.array)}
    living = (job for job in turn.state.jobs.values() if job.state is not JobState.DONE)
    return next((job for job in living if job.spec.checkpoint and job.spec.checkpoint.dir in dirs), None)


def cancel(turn: Turn, event: Cancel) -> None:
    """One rule for all states (LIFECYCLE 39): `wanted=cancel` is committed, then the job goes where that leads."""
    if (job := _find(turn, event)) is None:
        return
    if job.state is not JobState.DONE and job.wanted is not Wanted.CANCEL:
        why = f"cancelled by {event.actor}" + (f": {event.reason}" if event.reason else "")
        job = replace(job, wanted=Wanted.CANCEL, wanted_by=event.actor)
        turn.put(job)
        turn.note("CancelRequested", why, actor=event.actor, job=job.id)
        if job.state is JobState.QUEUED:
            finish_queued(turn, job, Result.CANCELLED, why, event.actor)
        else:
            grace_s = turn.settings.cancel_grace_s
            stop_attempt(turn, job, EndCause.CANCELLED, grace_s=grace_s, save=False, why=why, by=event.actor)
        turn.replan()
    turn.out.replies.append(Reply(event.request, job.id))


def hold(turn: Turn, event: Hold) -> None:
    """Keep a job from running; one that runs is checkpointed, stopped and queued as held."""
    if (job := _find(turn, event)) is None or _refuse_done(turn, event, job):
        return
    if job.wanted is Wanted.CANCEL:
        _refuse(turn, event, f"job {job.id} is being cancelled", "nothing to do")
        return
    if job.wanted is Wanted.RUN:
        job = replace(
            job, wanted=Wanted.HOLD, wanted_by=event.actor, reason_code="Held",
            reason=f"held by {event.actor}; release it with: jct release {job.id}", reason_since_us=turn.now,
        )
        turn.put(job)
        turn.note("Held", f"held by {event.actor}", actor=event.actor, job=job.id)
        if job.state is JobState.ACTIVE:
            grace_s, why = job.spec.grace_s, f"held by {event.actor}"
            stop_attempt(turn, job, EndCause.HELD, grace_s=grace_s, save=True, why=why, by=event.actor)
        turn.replan()
    turn.out.replies.append(Reply(event.request, job.id))


def release(turn: Turn, event: Release) -> None:
    if (job := _find(turn, event)) is None or _refuse_done(turn, event, job):
        return
    if job.wanted is not Wanted.HOLD:
        _refuse(turn, event, f"job {job.id} is not held", "nothing to release")
        return
    turn.put(replace(job, wanted=Wanted.RUN, wanted_by=event.actor, reason_code="Pending", reason="released"))
    turn.note("Released", f"released by {event.actor}", actor=event.actor, job=job.id)
    turn.replan()
    turn.out.replies.append(Reply(event.request, job.id))


def _find(turn: Turn, event: Cancel | Hold | Release) -> Job | None:
    job = turn.state.jobs.get(event.job)
    if job is None:
        error = JctError(Code.NOT_FOUND, f"there is no job {event.job}", hint="list yours with: jct ls -a")
        turn.out.replies.append(Reply(event.request, error=error))
    return job


def _refuse_done(turn: Turn, event: Hold | Release, job: Job) -> bool:
    if job.state is not JobState.DONE:
        return False
    _refuse(turn, event, f"job {job.id} has already ended ({job.result})", "submit it again as a new job")
    return True


def _refuse(turn: Turn, event: Hold | Release, message: str, hint: str) -> None:
    turn.out.replies.append(Reply(event.request, error=JctError(Code.CONFLICT, message, hint=hint)))
