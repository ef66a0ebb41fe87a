"""A scheduling pass: ask with a snapshot, re-check the answer against the present state, commit it whole or not.

1. `take_plan`: when something changed and no pass is under way, ask the policy.
2. The policy answers some time later; meanwhile the state may have moved on.
3. `planned`: each start is checked with the preemptions it needs; what no longer holds is dropped and asked anew.
4. Victims' stops, the new attempt, its generation, members and leases are one transaction.
5. Every job that waits gets its reason.
"""

from dataclasses import replace

from policies.model.decision import Preempt, Start, Wait
from scheduler.core.effects import Plan
from scheduler.core.endings import start_if_gathered, stop_attempt
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    EndCause,
    Generation,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
    Wanted,
)
from scheduler.core.events import Planned
from scheduler.core.settings import us
from scheduler.core.snapshot import offered, take_snapshot
from scheduler.core.state import State
from scheduler.core.turn import Turn


def take_plan(state: State, now: int) -> Plan | None:
    """The next question to the policy, or None while one is open or nothing has changed."""
    if state.planning or not state.plan_wanted:
        return None
    state.planning, state.plan_wanted, state.planned_us = True, False, now
    return Plan(take_snapshot(state, now))


def planned(turn: Turn, event: Planned) -> None:
    turn.state.planning = False
    if event.error:
        turn.note("PassFailed", event.error)
        return
    decisions = event.decisions
    preempts = {preempt.job: preempt for preempt in decisions.preempts}
    for start in decisions.starts:
        victims = [preempt for preempt in preempts.values() if preempt.for_job == start.job]
        if (why := _stale(turn, start, victims)) is None:
            _commit(turn, start, victims, event.nonce)
        else:
            turn.note("StartDropped", why, job=start.job)
            turn.replan()
    for wait in decisions.waits:
        _explain(turn, wait)


def _stale(turn: Turn, start: Start, victims: list[Preempt]) -> str | None:
    """Why this start no longer holds, or None."""
    state = turn.state
    job = state.jobs.get(start.job)
    if job is None or job.state is not JobState.QUEUED or job.wanted is not Wanted.RUN:
        return "the job is no longer waiting"
    if job.retry_at_us > turn.now:
        return "the job backs off"
    if not start.devices or len(set(start.devices)) != len(start.devices):
        return "the answer names no device, or one twice"
    if len(start.devices) != (start.plan.world_size if start.plan is not None else 1):
        return "the plan needs another number of devices"
    for victim in victims:
        if (attempt := state.open_attempt(victim.job)) is None or attempt.state is not AttemptState.RUNNING:
            return f"job {victim.job} is no longer running"
    yielding = {victim.job for victim in victims}
    for device in start.devices:
        if not offered(state, device):
            return f"device {device} is no longer offered"
        for lease in state.leases.values():
            if lease.device == device and not _will_be_free(state, lease, yielding):
                return f"device {device} is no longer free"
    return None


def _will_be_free(state: State, lease: Lease, yielding: set[int]) -> bool:
    if lease.state is not LeaseState.HELD:
        return False
    attempt = state.open_attempt(lease.job)
    stopping = attempt is not None and attempt.state is AttemptState.STOPPING
    return stopping or lease.job in yielding


def _commit(turn: Turn, start: Start, victims: list[Preempt], nonce: str) -> None:
    state, job = turn.state, turn.state.jobs[start.job]
    for victim in victims:
        why = f"preempted for job {job.id} (priority {job.priority})"
        other = state.jobs[victim.job]
        stop_attempt(turn, other, EndCause.PREEMPTED, grace_s=other.spec.grace_s, save=True, why=why)
    number = job.last_attempt + 1
    kind = AttemptKind.TRAIN if start.plan is not None else AttemptKind.PROBE
    turn.put(_activated(job, start, number))
    attempt = Attempt(
        job=job.id, number=number, kind=kind, created_us=turn.now, nonce=f"{nonce}-{job.id}.{number}",
        saved_step=job.saved_step,
    )
    turn.put(attempt)
    ranks = tuple(range(len(start.devices)))
    turn.put(Generation(job=job.id, attempt=number, number=1, plan=start.plan, ranks=ranks))
    held = {lease.device for lease in state.leases.values() if lease.state is LeaseState.HELD}
    for k, device in enumerate(start.devices):
        node = state.devices[device].node
        turn.put(Member(job=job.id, attempt=number, number=k, node=node, device=device))
        _lease(turn, device, job.id, number, k, LeaseState.PROMISED if device in held else LeaseState.HELD)
    data = {"devices": list(start.devices), "plan": start.plan.shape if start.plan is not None else None}
    turn.note("Placed", _placed(start), job=job.id, attempt=number, data=data)
    start_if_gathered(turn, job.id, number)


def _placed(start: Start) -> str:
    if start.plan is None:
        return "a probe on 1 device"
    plan, count = start.plan, len(start.devices)
    return f"{len(plan.stages)} stage(s) × {plan.microbatches} micro-batches on {count} device(s)"


def _activated(job: Job, start: Start, number: int) -> Job:
    size = job.microbatch_size
    if start.plan is not None and size is None and job.spec.numerics == "exact":
        size = start.plan.microbatch_size
    return replace(
        job, state=JobState.ACTIVE, last_attempt=number, microbatch_size=size,
        reason_code="", reason="", reason_since_us=None,
    )


def _lease(turn: Turn, device: str, job: int, attempt: int, member: int, state: LeaseState) -> None:
    counters = turn.state.counters
    lease = Lease(
        id=counters.lease, device=device, job=job, attempt=attempt, member=member, state=state, created_us=turn.now
    )
    counters.lease += 1
    turn.put(lease)


def _explain(turn: Turn, wait: Wait) -> None:
    """Reasons change with every pass; only a new code is worth a commit."""
    state = turn.state
    job = state.jobs.get(wait.job)
    if job is None or job.state is not JobState.QUEUED or job.wanted is not Wanted.RUN:
        return
    if wait.start_in_s is None:
        state.start_at_us.pop(job.id, None)
    else:
        state.start_at_us[job.id] = turn.now + us(wait.start_in_s)
    if job.reason_code != wait.code:
        turn.put(replace(job, reason_code=wait.code, reason=wait.text, reason_since_us=turn.now))
        turn.note("Waiting", f"{wait.code}: {wait.text}", job=job.id)
    else:
        state.jobs[job.id] = replace(job, reason=wait.text)
