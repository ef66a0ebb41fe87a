"""What happens because time passes. Timers are data: `next_deadline` says when a Tick is worth its while."""

from dataclasses import replace

from scheduler.core.changes import change_deadline, judge_change
from scheduler.core.clearing import clear
from scheduler.core.endings import finish_queued, stop_attempt
from scheduler.core.entities import AttemptKind, AttemptState, EndCause, Job, JobState, NodeState, Result
from scheduler.core.nodes import judge_silence
from scheduler.core.reports import stop_stalled
from scheduler.core.reserved import next_moment
from scheduler.core.settings import CoreSettings, us
from scheduler.core.state import State
from scheduler.core.turn import Turn
from scheduler.durations import format_duration

_OPEN = (AttemptState.STARTING, AttemptState.RUNNING)


def tick(turn: Turn) -> None:
    """Fire every timer that is due."""
    judge_silence(turn)
    clear(turn)
    state, cfg = turn.state, turn.settings
    for job in list(state.jobs.values()):
        if (deadline := job.spec.deadline_us) is not None and deadline <= turn.now and job.state is not JobState.DONE:
            _end_at_deadline(turn, job)
        elif job.state is JobState.ACTIVE:
            _judge_attempt(turn, job)
            if (attempt := state.open_attempt(job.id)) is not None:
                judge_change(turn, job, attempt)
        elif job.state is JobState.QUEUED and 0 < job.retry_at_us <= turn.now:
            turn.put(replace(job, retry_at_us=0))
            turn.replan()
        elif job.state is JobState.QUEUED and _begins_by(state, job, turn.now):
            turn.replan()
    living = any(job.state is not JobState.DONE for job in state.jobs.values())
    again = 0 < state.again_us <= turn.now
    if living and (again or turn.now >= state.planned_us + us(cfg.replan_s)):
        state.again_us = 0
        turn.replan()


def next_deadline(state: State, now: int, cfg: CoreSettings) -> int:
    """The earliest moment (microseconds) at which a Tick may change something; never later than a replan."""
    due = [now + us(cfg.replan_s)]
    if cfg.pass_gap_s and state.plan_wanted and not state.planning:
        due.append(state.planned_us + us(cfg.pass_gap_s))
    if state.again_us:
        due.append(state.again_us)
    for job in state.jobs.values():
        if job.state is JobState.QUEUED:
            due += _queued_until(state, job, now)
        elif job.state is JobState.ACTIVE:
            timers = (_attempt_deadline(state, job, cfg), _limit(state, job), _deadline(state, job))
            due += [at for at in timers if at is not None]
    due += next_moment(state, now)
    for node in state.nodes.values():
        if node.state is not NodeState.LOST and node.id in state.heard_us:
            wait_s = cfg.node_silent_s if node.state is NodeState.UP else cfg.node_lost_s
            due.append(state.heard_us[node.id] + us(wait_s))
    for job_id in state.changing:
        attempt = state.open_attempt(job_id)
        at = change_deadline(state, attempt, cfg.start_timeout_s) if attempt is not None else None
        due += [at] if at is not None else []
    return max(now, min(due))


def _queued_until(state: State, job: Job, now: int) -> list[int]:
    """When a waiting job may be tried again, may begin, and must have ended. Asked of thousands at a time."""
    spec, due = job.spec, []
    if job.retry_at_us:
        due.append(job.retry_at_us)
    if spec.begin_us is not None and (spec.begin_us > now or _begins_unseen(state, spec.begin_us)):
        due.append(spec.begin_us)
    if spec.deadline_us is not None:
        due.append(spec.deadline_us)
    return due


def _begins_unseen(state: State, begin_us: int) -> bool:
    """It came since the last pass, and no pass is wanted yet that will see it."""
    return begin_us > state.planned_us and not state.plan_wanted


def _deadline(state: State, job: Job) -> int | None:
    """When a job must have ended; None for those without, and for those that are ending already."""
    if job.state is JobState.DONE:
        return None
    attempt = state.open_attempt(job.id)
    return None if attempt is not None and attempt.state is AttemptState.STOPPING else job.spec.deadline_us


def _end_at_deadline(turn: Turn, job: Job) -> None:
    why = "its deadline has passed"
    if job.state is JobState.QUEUED:
        finish_queued(turn, job, Result.DEADLINE, why, "jctd")
    elif _deadline(turn.state, job) is not None:
        stop_attempt(turn, job, EndCause.DEADLINE, grace_s=job.spec.grace_s, save=True, why=why)


def _begins_by(state: State, job: Job, now: int) -> bool:
    """Its begin time has come since the last pass."""
    return job.spec.begin_us is not None and state.planned_us < job.spec.begin_us <= now


def _limit(state: State, job: Job) -> int | None:
    """When the job's time is up: time with devices counts, over all its attempts."""
    attempt = state.open_attempt(job.id)
    if attempt is None or attempt.state not in _OPEN or job.spec.time_limit_s is None:
        return None
    if attempt.kind is AttemptKind.PROBE:
        return None
    return (attempt.starting_us or attempt.created_us) + us(job.spec.time_limit_s) - job.ran_us


def _attempt_deadline(state: State, job: Job, cfg: CoreSettings) -> int | None:
    attempt = state.open_attempt(job.id)
    if attempt is None or attempt.state not in _OPEN:
        return None
    if attempt.kind is AttemptKind.PROBE:
        begun = attempt.running_us or attempt.starting_us or attempt.created_us
        return begun + us(cfg.probe_timeout_s if attempt.running_us else cfg.start_timeout_s)
    if attempt.state is AttemptState.STARTING:
        return (attempt.starting_us or attempt.created_us) + us(cfg.start_timeout_s)
    if attempt.kind is AttemptKind.COMMAND and job.spec.progress_timeout_s is None:
        return None
    progress = state.progress.get(job.id)
    step_time_s = progress.step_time_s if progress is not None else None
    allowed_s = job.spec.progress_timeout_s or max(cfg.stall_s, cfg.stall_steps * (step_time_s or 0.0))
    last = max(state.step_at_us.get(job.id, 0), attempt.running_us or 0, state.started_us + us(cfg.judge_after_s))
    return last + us(allowed_s)


def _judge_attempt(turn: Turn, job: Job) -> None:
    if (limit := _limit(turn.state, job)) is not None and turn.now >= limit:
        why = f"its time limit of {format_duration(job.spec.time_limit_s or 0)} is over"
        stop_attempt(turn, job, EndCause.TIME_LIMIT, grace_s=job.spec.grace_s, save=True, why=why)
        return
    at = _attempt_deadline(turn.state, job, turn.settings)
    if at is None or turn.now < at:
        return
    attempt = turn.state.open_attempt(job.id)
    assert attempt is not None
    if attempt.state is AttemptState.RUNNING and attempt.kind is not AttemptKind.PROBE:
        last = turn.state.step_at_us.get(job.id) or attempt.running_us or turn.now
        stop_stalled(turn, job, attempt, (turn.now - last) / 1e6)
    else:
        what = "the probe" if attempt.kind is AttemptKind.PROBE else "the start"
        why = f"{what} took longer than allowed"
        stop_attempt(turn, job, EndCause.START_FAILED, grace_s=0.0, save=False, why=why)
