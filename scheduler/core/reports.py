"""What members say they are: progress, checkpoints, ends. Reports win about what *is*."""

from dataclasses import replace

from scheduler.core.changes import newcomer_ended, take_revision, take_word
from scheduler.core.endings import end_if_gone, stop_attempt
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    EndCause,
    GenerationState,
    Job,
    Member,
    ProfileRecord,
)
from scheduler.core.leases import free_device
from scheduler.core.preemptible import observe
from scheduler.core.quarantine import quarantine
from scheduler.core.sizes import out_of_range
from scheduler.core.state import Progress, Role
from scheduler.core.targets import pilot_of
from scheduler.core.turn import Turn
from scheduler.protocol.messages import Cause, Phase, Report
from scheduler.protocol.plausible import plausible

_OVER = (Phase.EXITED, Phase.GONE)


def take_report(turn: Turn, node: str, report: Report) -> None:
    """Take one report if it is news. Late and repeated ones change nothing."""
    state, report = turn.state, plausible(report)
    member, attempt = state.members.get(report.key), state.attempts.get((report.job, report.attempt))
    if member is None or attempt is None or member.node != node:
        _unknown(turn, node, report)
        return
    last = state.reports.get(report.key)
    end = report.phase is Phase.GONE  # an end is final, whatever its number
    if member.gone_us is not None or (last is not None and report.seq <= last.seq and not end):
        return
    state.reports[report.key] = report
    if attempt.state is not AttemptState.ENDED:
        job = state.jobs[report.job]
        _take_store(turn, report)
        take_word(turn, attempt, report)
        if _is_pilot(turn, report):
            take_revision(turn, attempt, report)
            _take_progress(turn, job, report)
        _begin_command(turn, turn.state.attempts[report.job, report.attempt])
        if report.phase in _OVER:
            _take_exit(turn, job, member, report)
        settles = last is None or last.live != report.live or attempt.state is AttemptState.STARTING
        if settles and out_of_range(state, job):
            turn.replan()  # its owner changed its range while it started or changed
    if report.phase is Phase.GONE:
        _take_gone(turn, report)
    elif report.phase is Phase.STUCK:
        quarantine(turn, member)


def _unknown(turn: Turn, node: str, report: Report) -> None:
    """A member this database has never heard of: hands off, but the device is not free (LIFECYCLE 25)."""
    name = f"{report.job}.{report.attempt}/{report.member}"
    if report.phase in _OVER:
        turn.state.foreign.pop(name, None)
    elif name not in turn.state.foreign and turn.may_note("ForeignMember"):
        turn.state.foreign[name] = node
        turn.note("ForeignMember", f"{name} runs there and is not in this database; end it by hand", node=node)


def _is_pilot(turn: Turn, report: Report) -> bool:
    generation = turn.state.generation_of(report.job, report.attempt)
    attempt = turn.state.attempts[report.job, report.attempt]
    return generation is not None and pilot_of(attempt, generation) == report.member


def _take_store(turn: Turn, report: Report) -> None:
    """Each generation has a store of its own, beside its pilot."""
    attempt = turn.state.attempts[report.job, report.attempt]
    generation = turn.state.aimed(report.job, report.attempt)
    if report.store is None or attempt.store == report.store or generation is None:
        return
    if report.member == pilot_of(attempt, generation) and report.store_generation == generation.number:
        turn.put(replace(attempt, store=report.store))


def _take_progress(turn: Turn, job: Job, report: Report) -> None:
    state = turn.state
    progress = state.progress.setdefault(job.id, Progress())
    if report.phase not in _OVER:
        progress.phase = report.phase
    if report.step is not None and report.step != progress.step:
        progress.step = report.step
        state.step_at_us[job.id] = turn.now
    for name in ("loss", "step_time_s", "batch", "bubble_share", "saved", "first_evaluation", "last_evaluation"):
        if (value := getattr(report, name)) is not None:
            setattr(progress, name, value)
    observe(state, job, report)
    _keep_facts(turn, job, report)
    attempt = state.attempts[report.job, report.attempt]
    if report.resumed_step is not None and attempt.resumed_step is None:
        attempt = replace(attempt, resumed_step=report.resumed_step)
        turn.put(attempt)
        if report.resumed_step:
            said = report.message or f"resumed at step {report.resumed_step}"
            turn.note("Resumed", said, job=job.id, attempt=attempt.number)
    elif report.message not in ("", progress.message) and report.phase not in _OVER:
        turn.note("Told", report.message, job=job.id, attempt=attempt.number)
    progress.message = report.message
    if report.profiles:
        _take_profiles(turn, job, report)
    if attempt.state is AttemptState.STARTING and _has_begun(attempt, report):
        _running(turn, attempt)


def _has_begun(attempt: Attempt, report: Report) -> bool:
    """A probe has begun with its first layer, a training with its first finished step of this attempt."""
    if attempt.kind is AttemptKind.PROBE:
        return report.phase is Phase.PROBING or bool(report.profiles)
    if attempt.kind is AttemptKind.COMMAND:
        return False  # see _begin_command
    return report.step is not None and report.step > (attempt.resumed_step or 0)


def _begin_command(turn: Turn, attempt: Attempt) -> None:
    """A command runs once all its members do, or have."""
    if attempt.kind is not AttemptKind.COMMAND or attempt.state is not AttemptState.STARTING:
        return
    members = turn.state.members_of(attempt.job, attempt.number)
    known = [turn.state.reports.get((member.job, member.attempt, member.number)) for member in members]
    if all(report is not None and report.phase in (Phase.TRAINING, *_OVER) for report in known):
        _running(turn, attempt)


def _running(turn: Turn, attempt: Attempt) -> None:
    turn.put(replace(attempt, state=AttemptState.RUNNING, running_us=turn.now))
    generation = turn.state.generation_of(attempt.job, attempt.number)
    assert generation is not None
    turn.put(replace(generation, state=GenerationState.ACTIVE))
    turn.note("Running", f"{attempt.kind} runs", job=attempt.job, attempt=attempt.number)


def _keep_facts(turn: Turn, job: Job, report: Report) -> None:
    """What must survive a restart: the newest checkpoint, the job's size, its validation losses."""
    changed = replace(
        job,
        total_steps=report.total_steps or job.total_steps,
        global_batch=report.global_batch or job.global_batch,
        fingerprint=report.fingerprint or job.fingerprint,
        saved_step=report.saved if report.saved is not None else job.saved_step,
    )
    if report.first_evaluation is not None and job.first_validation_loss is None:
        changed = replace(changed, first_validation_loss=report.first_evaluation.loss)
    if report.last_evaluation is not None:
        changed = replace(changed, last_validation_loss=report.last_evaluation.loss)
    if changed == job:
        return
    turn.put(changed)
    if changed.saved_step != job.saved_step:
        text = f"checkpoint of step {changed.saved_step} is complete"
        turn.note("Checkpointed", text, job=job.id, attempt=report.attempt)


def _take_profiles(turn: Turn, job: Job, report: Report) -> None:
    job = turn.state.jobs[job.id]
    kind = report.profiles[0].device_kind
    record = ProfileRecord(
        spec_key=job.spec_key, device_kind=kind, fingerprint=report.fingerprint or "",
        profiles=report.profiles, total_steps=report.total_steps, global_batch=report.global_batch,
    )
    if turn.state.profiles.get((record.spec_key, kind)) != record:
        turn.put(record)
        text = f"{len(record.profiles[0].layers)} layers measured on {kind}"
        turn.note("Probed", text, job=job.id, attempt=report.attempt)


def _take_exit(turn: Turn, job: Job, member: Member, report: Report) -> None:
    if member.exited_us is not None:
        return
    turn.put(
        replace(
            member, exit_code=report.exit_code, signal=report.signal, cause=report.cause,
            message=report.message, exited_us=turn.now,
        )
    )
    attempt = turn.state.attempts[report.job, report.attempt]
    how = _how(report)
    turn.note("MemberEnded", f"member {member.number} on {member.node}: {how}", job=job.id, attempt=attempt.number)
    if attempt.state not in (AttemptState.STARTING, AttemptState.RUNNING) or _ends_alone(turn, attempt, member, report):
        return
    if attempt.kind is AttemptKind.COMMAND and report.cause is Cause.FINISHED and _others_run(turn, attempt):
        return
    if report.cause in (Cause.FINISHED, Cause.PROBE_DONE):
        finished = report.cause is Cause.FINISHED
        cause = EndCause.FINISHED if finished else EndCause.PROBE_DONE
        why = "it has finished" if finished else "the probe has measured all layers"
        stop_attempt(turn, turn.state.jobs[job.id], cause, grace_s=turn.settings.finish_grace_s, save=False, why=why)
    else:
        why = f"member {member.number} on {member.node} ended: {how}"
        is_command = attempt.kind is AttemptKind.COMMAND
        grace_s = turn.settings.finish_grace_s if is_command else turn.settings.blame_s
        stop_attempt(turn, turn.state.jobs[job.id], None, grace_s=grace_s, save=False, why=why)


def _others_run(turn: Turn, attempt: Attempt) -> bool:
    """A command has finished when all its members have."""
    return any(member.exited_us is None for member in turn.state.members_of(attempt.job, attempt.number))


def _ends_alone(turn: Turn, attempt: Attempt, member: Member, report: Report) -> bool:
    """Whether the gang goes on without the member: it had no part in it any more, or not yet."""
    state, role = turn.state, turn.state.role(member)
    if report.cause is Cause.FINISHED or role is Role.PAST:
        return role is Role.PAST
    proposed = state.proposed(attempt.job, attempt.number)
    if role is Role.NEWCOMER:
        newcomer_ended(turn, attempt, f"newcomer {member.number} on {member.node} ended: {_how(report)}")
        return True
    leaves = proposed is not None and member.number not in proposed.ranks
    return leaves and report.cause is Cause.STOPPED


def _how(report: Report) -> str:
    code = f"signal {report.signal}" if report.signal is not None else f"exit code {report.exit_code}"
    text = f": {report.message}" if report.message else ""
    return f"{report.cause or 'unknown cause'} ({code}){text}"


def _take_gone(turn: Turn, report: Report) -> None:
    member = replace(turn.state.members[report.key], gone_us=turn.now)
    turn.put(member)
    free_device(turn, member)
    end_if_gone(turn, report.job, report.attempt)


def stop_stalled(turn: Turn, job: Job, attempt: Attempt, quiet_s: float) -> None:
    """No step for too long: the gang is stopped; the stall counts as a fault."""
    why = f"no step finished for {quiet_s:.0f} s"
    turn.note("Stalled", why, job=job.id, attempt=attempt.number)
    stop_attempt(turn, job, EndCause.STALLED, grace_s=turn.settings.blame_s, save=False, why=why)
