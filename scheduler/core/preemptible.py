"""What may be taken from a running job, when, and how."""

from policies.model.cluster import Observed
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, Job
from scheduler.core.settings import us
from scheduler.core.state import State
from scheduler.protocol.messages import Phase, Report

OVER = (Phase.EXITED, Phase.GONE)
PLANS_KEPT = 16


def preemptible(state: State, job: Job, attempt: Attempt, now: int) -> bool:
    """No victim until it has a checkpoint newer than its resume point, or has run its minimum since it began or last
    changed its shape (LIFECYCLE 13). One that was preempted before and keeps nothing of this attempt must first have
    run for longer than ever: else it could be preempted for ever and come to nothing."""
    if not job.spec.preemptible or attempt.state is not AttemptState.RUNNING or attempt.kind is AttemptKind.PROBE:
        return False
    assert attempt.running_us is not None
    since = max(attempt.running_us, state.changed_us.get(job.id, 0))
    if now - since < us(job.spec.min_runtime_s):
        return (job.saved_step or 0) > (attempt.resumed_step or 0)
    return not job.preemptions or _comes_on(state, job, attempt, now)


def _comes_on(state: State, job: Job, attempt: Attempt, now: int) -> bool:
    assert attempt.running_us is not None
    if job.spec.checkpoint is not None or job.saved_step:
        progress = state.progress.get(job.id)
        reached = max((progress.step if progress is not None else None) or 0, job.saved_step or 0)
        return reached > (attempt.resumed_step or 0)
    earlier = (state.attempts.get((job.id, number)) for number in range(1, attempt.number))
    longest = max(
        ((one.stopping_us or 0) - one.running_us for one in earlier if one is not None and one.running_us is not None
         and one.kind is not AttemptKind.PROBE), default=0,
    )  # fmt: skip
    return now - attempt.running_us > longest


def guaranteed(state: State, job: Job) -> int:
    """Devices that are never taken from it: its minimum, where its priority class says so."""
    named = state.classes.get(job.spec.priority_class)
    return job.spec.min_devices if named is not None and named.guaranteed else 0


def changes_live(state: State, attempt: Attempt) -> bool:
    """Whether every member says that it can change its shape while it trains."""
    if attempt.state is not AttemptState.RUNNING or attempt.kind is not AttemptKind.TRAIN:
        return False
    if state.stops_to_change.get(attempt.job) == attempt.number:
        return False
    present = state.present_members(attempt.job, attempt.number)
    reports = [state.reports.get((member.job, member.attempt, member.number)) for member in present]
    return all(report is not None and report.live and report.phase not in OVER for report in reports)


def observe(state: State, job: Job, report: Report) -> None:
    """Keep the step time of the plan that the pilot runs, smoothed; in memory, for as long as the job lives."""
    generation = state.generation_of(report.job, report.attempt)
    plan = report.plan or (generation.plan if generation is not None else None)
    member = state.members.get((report.job, report.attempt, report.member))
    if plan is None or member is None or not report.step_time_s:
        return
    if report.batch is not None and report.batch != plan.global_batch:  # it ramps up: no step of the plan's own
        return
    seen = state.observed.setdefault(job.id, {})
    kind = state.devices[member.device].kind
    old = seen.pop((kind, plan), None)
    step_s = report.step_time_s if old is None else old.step_time_s + 0.3 * (report.step_time_s - old.step_time_s)
    seen[kind, plan] = Observed(kind, plan.world_size, plan, step_s)
    if len(seen) > PLANS_KEPT:
        del seen[next(iter(seen))]
