"""Where a job goes when its attempt has ended: pure tables of blame and of consequences (LIFECYCLE 35, 36)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduler.core.entities import EndCause, Job, JobState, Member, Result, Wanted
from scheduler.core.settings import CoreSettings, us
from scheduler.protocol.messages import Cause

_BLAME: tuple[tuple[Cause, EndCause], ...] = (
    (Cause.USER_EXCEPTION, EndCause.FAILED),
    (Cause.BAD_SPEC, EndCause.BAD_SPEC),
    (Cause.NOT_SUPPORTED, EndCause.BAD_SPEC),
    (Cause.CHECKPOINT_BROKEN, EndCause.BAD_SPEC),
    (Cause.PLAN_MISMATCH, EndCause.PLAN_MISMATCH),
    (Cause.OUT_OF_MEMORY, EndCause.OUT_OF_MEMORY),
    (Cause.SIGNAL, EndCause.RANK_LOST),
    (Cause.SHIM_LOST, EndCause.RANK_LOST),
    (Cause.STALLED, EndCause.STALLED),
    (Cause.START_FAILED, EndCause.START_FAILED),
    (Cause.FENCED, EndCause.RANK_LOST),
    (Cause.PEER_LOST, EndCause.RANK_LOST),
    (Cause.KILLED, EndCause.RANK_LOST),
)

_RESULT = {
    EndCause.FAILED: Result.FAILED,
    EndCause.BAD_SPEC: Result.FAILED,
    EndCause.OUT_OF_MEMORY: Result.OUT_OF_MEMORY,
    EndCause.RANK_LOST: Result.FAILED,
    EndCause.STALLED: Result.FAILED,
    EndCause.START_FAILED: Result.FAILED,
    EndCause.NODE_LOST: Result.NODE_LOST,
    EndCause.TIME_LIMIT: Result.TIMEOUT,
    EndCause.DEADLINE: Result.DEADLINE,
}

_OPEN_TO_THE_PROGRAM = (None, EndCause.PREEMPTED, EndCause.RESIZED, EndCause.REQUEUED)
"""Stops of ours under which a program's exit code still says what shall become of its job."""

_REQUEUED_FREE = (
    EndCause.PREEMPTED, EndCause.RESIZED, EndCause.PROBE_DONE, EndCause.PLAN_MISMATCH, EndCause.HELD, EndCause.REQUEUED,
)
_FAULTS = (EndCause.RANK_LOST, EndCause.STALLED, EndCause.NODE_LOST, EndCause.START_FAILED)

GOLDEN = 0.618033988749895
"""Its multiples spread evenly between whole numbers."""


def blame(ours: EndCause | None, members: list[Member], all_finish: bool = False) -> tuple[EndCause, Member | None]:
    """The attempt's cause, and the member it is read from.

    all_finish: it has finished only if every member says so. ours: the cause of a stop that the daemon had ordered.
    `finished` beats every stop; a stop of ours beats what members did under it; else the gravest cause wins and the
    order of the reports does not matter.
    """
    for wanted, cause in ((Cause.FINISHED, EndCause.FINISHED), (Cause.PROBE_DONE, EndCause.PROBE_DONE)):
        done = [member for member in members if member.cause is wanted]
        if done and (not all_finish or len(done) == len(members)):
            return cause, done[0]
    if ours is not None:
        return ours, next((member for member in members if member.message), None)
    for guilty, cause in _BLAME:
        for member in members:
            if member.cause is guilty:
                return cause, member
    return EndCause.RANK_LOST, members[0] if members else None


def exit_verdict(on_exit: Mapping[str, str], ours: EndCause | None, members: list[Member]) -> str:
    """What the job's `on_exit` makes of its programs' exit codes: `fail` before `requeue` before `done`, or nothing."""
    if ours not in _OPEN_TO_THE_PROGRAM:
        return ""
    said = {on_exit.get(str(member.exit_code), "") for member in members}
    return next((verdict for verdict in ("fail", "requeue", "done") if verdict in said), "")


_VERDICTS = {"fail": EndCause.FAILED, "requeue": EndCause.REQUEUED, "done": EndCause.FINISHED}


def by_verdict(verdict: str, cause: EndCause) -> EndCause:
    return _VERDICTS.get(verdict, cause)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The job's next value, and the line for its story."""

    job: Job
    text: str


def after_attempt(
    job: Job, cause: EndCause, message: str, progressed: bool, now: int, cfg: CoreSettings, verdict: str = ""
) -> Outcome:
    """The job after an attempt that ended by `cause`.

    progressed: the attempt published a checkpoint newer than it started from; that forgives earlier faults. verdict: of
    its exit code; `fail` is for good, and who asks to be queued again waits as after a failure, so that it cannot spin.
    """
    if cause is EndCause.FINISHED:
        return _done(job, Result.COMPLETED, "finished", now, "job")
    if job.wanted is Wanted.CANCEL:
        return _done(job, Result.CANCELLED, f"cancelled by {job.wanted_by}", now, job.wanted_by or "user")
    if progressed:
        job = replace(job, faults=0)
    if cause is EndCause.PREEMPTED:
        job = replace(job, preemptions=job.preemptions + 1)
    if cause in _REQUEUED_FREE:
        return _queued(job, message, now, us(job.spec.retries_backoff_s) if verdict == "requeue" else 0)
    if cause is EndCause.FAILED and verdict != "fail" and job.failures < job.spec.retries_max:
        wait = us(_jittered(job, job.spec.retries_backoff_s * 2**job.failures))
        return _queued(replace(job, failures=job.failures + 1), message, now, wait)
    if cause in _FAULTS and job.faults < cfg.fault_limit:
        backoff_s = _jittered(job, min(cfg.backoff_s * 2**job.faults, cfg.backoff_cap_s))
        wait = us(backoff_s) if cause is EndCause.START_FAILED else 0
        return _queued(replace(job, faults=job.faults + 1), message, now, wait)
    return _done(job, _RESULT[cause], message, now, "job")


def _jittered(job: Job, seconds: float) -> float:
    """Up to a quarter longer, by the job's id: jobs that failed together are not all tried again together."""
    return seconds * (1.0 + 0.25 * (job.id * GOLDEN % 1.0))


def _done(job: Job, result: Result, text: str, now: int, by: str) -> Outcome:
    done = replace(
        job, state=JobState.DONE, result=result, ended_us=now, ended_by=by,
        reason_code=str(result), reason=text, reason_since_us=now,
    )
    return Outcome(done, f"{result}: {text}")


def _queued(job: Job, message: str, now: int, wait_us: int) -> Outcome:
    code, reason = "Pending", "the next scheduling pass will look at it"
    if job.wanted is Wanted.HOLD:
        code, reason = "Held", f"held by {job.wanted_by}; release it with: jct release {job.id}"
    elif wait_us:
        code, reason = "Backoff", f"tries again in {wait_us / 1e6:.0f} s: {message}"
    queued = replace(
        job, state=JobState.QUEUED, retry_at_us=now + wait_us if wait_us else 0,
        reason_code=code, reason=reason, reason_since_us=now,
    )
    return Outcome(queued, f"queued again: {message}")
