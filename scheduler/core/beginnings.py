"""How attempts begin: devices are leased or promised in one transaction, and a gang starts whole or not at all."""

from dataclasses import replace

from policies.model.decision import Start
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    Generation,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
)
from scheduler.core.snapshot import offered
from scheduler.core.state import State
from scheduler.core.turn import Turn


def unavailable(state: State, device: str, job: int, yielding: frozenset[int] = frozenset()) -> str | None:
    """Why a job cannot have a device now or once the jobs that stop are gone; None where it can.

    yielding: running jobs that are about to be stopped. A device promised to another job is not available.
    """
    if not offered(state, device):
        return f"device {device} is no longer offered"
    for other, (start, _) in state.resizing.items():
        if other != job and device in start.devices:
            return f"device {device} is kept for job {other}"
    if all(_will_be_free(state, lease, yielding) for lease in state.leases_on(device)):
        return None
    return f"device {device} is no longer free"


def _will_be_free(state: State, lease: Lease, yielding: frozenset[int]) -> bool:
    if lease.state is not LeaseState.HELD:
        return False
    attempt = state.open_attempt(lease.job)
    stopping = attempt is not None and attempt.state is AttemptState.STOPPING
    return stopping or lease.job in yielding


def begin(turn: Turn, start: Start, nonce: str) -> None:
    """Make the next attempt of a queued job, its generation, members and leases."""
    state, job = turn.state, turn.state.jobs[start.job]
    number = job.last_attempt + 1
    kind = AttemptKind.TRAIN if start.plan is not None else AttemptKind.PROBE
    kind = AttemptKind.COMMAND if job.spec.is_command else kind
    turn.put(_activated(job, start, number))
    attempt = Attempt(
        job=job.id, number=number, kind=kind, created_us=turn.now, nonce=f"{nonce}-{job.id}.{number}",
        saved_step=job.saved_step,
    )
    turn.put(attempt)
    ranks = tuple(range(len(start.devices)))
    turn.put(Generation(job=job.id, attempt=number, number=1, plan=start.plan, ranks=ranks))
    for k, device in enumerate(start.devices):
        node = state.devices[device].node
        turn.put(Member(job=job.id, attempt=number, number=k, node=node, device=device))
        lease_device(turn, device, job.id, number, k)
    data = {"devices": list(start.devices), "plan": start.plan.shape if start.plan is not None else None}
    turn.note("Placed", _placed(start, kind), job=job.id, attempt=number, data=data)
    start_if_gathered(turn, job.id, number)


def start_if_gathered(turn: Turn, job: int, number: int) -> None:
    """GATHERING -> STARTING once every lease is HELD: a gang starts whole or not at all."""
    attempt = turn.state.attempts[job, number]
    if attempt.state is AttemptState.GATHERING and all(
        lease.state is LeaseState.HELD for lease in turn.state.leases_of(job, number)
    ):
        turn.put(replace(attempt, state=AttemptState.STARTING, starting_us=turn.now))
        turn.note("Starting", "all devices are held", job=job, attempt=number)


def _placed(start: Start, kind: AttemptKind) -> str:
    if kind is AttemptKind.COMMAND:
        return f"a command on {len(start.devices)} device(s)"
    if start.plan is None:
        return "a probe on 1 device"
    plan, count = start.plan, len(start.devices)
    return f"{len(plan.stages)} stage(s) × {plan.microbatches} micro-batches on {count} device(s)"


def _activated(job: Job, start: Start, number: int) -> Job:
    size = job.microbatch_size
    if start.plan is not None and size is None and job.spec.numerics == "exact" and not job.spec.is_command:
        size = start.plan.microbatch_size
    return replace(
        job, state=JobState.ACTIVE, last_attempt=number, microbatch_size=size,
        reason_code="", reason="", reason_since_us=None,
    )


def lease_device(turn: Turn, device: str, job: int, attempt: int, member: int) -> None:
    """Tie a device to a member, now or once its holder is gone."""
    counters = turn.state.counters
    state = LeaseState.PROMISED if turn.state.is_held(device) else LeaseState.HELD
    lease = Lease(
        id=counters.lease, device=device, job=job, attempt=attempt, member=member, state=state, created_us=turn.now
    )
    counters.lease += 1
    turn.put(lease)
