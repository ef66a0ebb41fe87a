"""The state as a policy sees it."""

from dataclasses import fields, replace
from operator import attrgetter

from policies.jct import explored
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, MenuRequest
from scheduler.core.commands import command_request, command_seconds
from scheduler.core.contention import slowdown_of
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    Generation,
    Job,
    Lease,
    LeaseState,
    NodeState,
    Wanted,
)
from scheduler.core.entities import JobState as Stored
from scheduler.core.obstacles import Looker, Obstacle
from scheduler.core.past_work import PastWork, attained_gpu_s, attempts_of
from scheduler.core.preemptible import changes_live, guaranteed, preemptible
from scheduler.core.reserved import closed_nodes, drain_of, in_force
from scheduler.core.settings import CoreSettings
from scheduler.core.sizes import out_of_range
from scheduler.core.state import State, Viewed
from scheduler.core.tenants import queue_views, team_views, user_views
from scheduler.protocol.plausible import MOST

HALF_LIFE_S = CoreSettings().half_life_s

_but_reason = attrgetter(*(field.name for field in fields(Job) if not field.name.startswith("reason")))
"""Sentences may change for thousands of waiting jobs at once, and no policy reads them."""

SWITCH = "switch"
"""The label by which an agent tells which network switch its node hangs on."""


def take_snapshot(state: State, now: int, half_life_s: float = HALF_LIFE_S) -> ClusterSnapshot:
    """All devices that are there, and all jobs that hold or want some. half_life_s: of what teams have used."""
    looker = Looker.at(state, now)
    lent, past = inherited(state), PastWork.of(state)
    jobs = tuple(
        _view(state, job, now, looker, past, lent.get(job.id, 0)) for job in state.jobs.values() if _takes_part(job)
    )
    return ClusterSnapshot(
        version=state.version, now_us=now, devices=_devices(state, now), jobs=jobs,
        teams=team_views(state, now, half_life_s), users=user_views(state), queues=queue_views(state),
    )  # fmt: skip


def offered(state: State, device_id: str) -> bool:
    """It is there and not drained."""
    return is_there(state, device_id) and drain_of(state, device_id) is None


def is_there(state: State, device_id: str) -> bool:
    """Healthy, on a node that is UP and has said Hello to this daemon, and nothing unknown runs there."""
    device = state.devices.get(device_id)
    if device is None or not device.healthy:
        return False
    node = state.nodes.get(device.node)
    up = node is not None and node.state is NodeState.UP and device.node in state.said_hello
    return up and device.node not in state.foreign.values()


def priority_of(state: State, job: Job) -> int:
    """The job's own, and what its team and its queue add."""
    team, queue = state.teams.get(job.spec.team), state.queues.get(job.spec.queue)
    return job.priority + (team.priority if team is not None else 0) + (queue.priority if queue is not None else 0)


def inherited(state: State) -> dict[int, int]:
    """Priorities that waiting jobs have from those that wait for them, however indirectly: what an urgent job depends
    on is urgent too. A job waits for older ones only."""
    found: dict[int, int] = {}
    for job in reversed(list(state.jobs.values())):
        if job.waits_for and job.state is Stored.QUEUED:
            own = max(priority_of(state, job), found.get(job.id, 0))
            for parent, _ in job.waits_for:
                found[parent] = max(own, found.get(parent, 0))
    return found


def work_known(state: State, job: Job) -> bool:
    """Whether its remaining work is more than a guess: of a command only once it has told how fast it is."""
    if job.spec.is_command:
        return bool(job.total_steps and state.observed.get(job.id))
    return bool(job.total_steps or state.probed(job).total_steps)


def remaining_steps(state: State, job: Job) -> int:
    """Declared steps less those done; of a waiting job, less those saved. At least 1. A step of a command is what it
    does in a second on one device."""
    progress = state.progress.get(job.id)
    done = (progress.step if progress is not None and progress.step is not None else job.saved_step) or 0
    if job.spec.is_command:
        alone_s = explored.alone_s(tuple(state.observed.get(job.id, {}).values()))
        if job.total_steps and alone_s is not None:
            return max(1, round(min(MOST, (job.total_steps - done) * alone_s)))
        return command_seconds(job.spec, job.ran_us / 1e6)
    return max(1, (job.total_steps or state.probed(job).total_steps or 1) - done)


def _devices(state: State, now: int) -> tuple[DeviceView, ...]:
    holder: dict[str, int] = {}
    promised: dict[str, int] = {}
    withheld: dict[str, int] = {}
    for lease in state.leases.values():
        _book(state, lease, holder, promised, withheld)[lease.device] = lease.job
    for job, (start, _) in state.resizing.items():
        promised.update((device, job) for device in start.devices)
    reserved = {node: item.team for item in in_force(state, now) for node in item.nodes}
    return tuple(
        DeviceView(
            id=device.id, node=device.node, kind=device.kind, memory_bytes=device.memory_bytes,
            holder=holder.get(device.id), promised=promised.get(device.id),
            switch=state.labels.get(device.node, {}).get(SWITCH, ""),
            offered=drain_of(state, device.id) is None and reserved.get(device.node) != "",
            reserved_for=reserved.get(device.node, ""), slowdown=slowdown_of(state, device.id),
        )
        for device in state.devices.values()
        if is_there(state, device.id) and device.id not in withheld
    )


def _book(
    state: State, lease: Lease, holder: dict[str, int], promised: dict[str, int], withheld: dict[str, int]
) -> dict[str, int]:
    """Where a lease counts. Quarantined devices, and those that a late owner still holds, are not offered at all."""
    if lease.state is LeaseState.PROMISED:
        return promised
    attempt = state.open_attempt(lease.job)
    late = attempt is None or attempt.number != lease.attempt
    return withheld if lease.state is LeaseState.QUARANTINED or late else holder


def _takes_part(job: Job) -> bool:
    return job.state is Stored.ACTIVE or (job.state is Stored.QUEUED and job.wanted is Wanted.RUN)


def _view(state: State, job: Job, now: int, looker: Looker, past: PastWork, lent: int) -> JobView:
    """Of a job that waits mostly the last pass's: thousands may wait, and little of them changes.

    lent: the priority of the most urgent job that waits for this one.
    """
    if job.state is Stored.ACTIVE:
        return _job_view(state, job, now, looker, past, lent, None)
    obstacle = looker.obstacle(job)
    around = (
        obstacle, looker.most(job), lent, priority_of(state, job), guaranteed(state, job), state.probed(job),
        now < job.avoid_until_us, tuple(closed_nodes(state, job, now)),
        () if work_known(state, job) else past.like(job),
    )  # fmt: skip
    last = state.views.get(job.id)
    if last is not None and last.around == around:
        if last.job is job:
            return last.view
        if _but_reason(last.job) == _but_reason(job):
            state.views[job.id] = replace(last, job=job)
            return last.view
    view = _job_view(state, job, now, looker, past, lent, obstacle)
    state.views[job.id] = Viewed(job, around, view)
    return view


def _job_view(
    state: State, job: Job, now: int, looker: Looker, past: PastWork, lent: int, obstacle: Obstacle | None
) -> JobView:
    attempt = state.open_attempt(job.id)
    proposed = state.proposed(job.id, attempt.number) if attempt is not None else None
    generation = proposed or (state.generation_of(job.id, attempt.number) if attempt is not None else None)
    leases = _leases(looker, attempt, generation)
    history = attempts_of(state, job)
    avoid = job.avoid if now < job.avoid_until_us else ()
    attained, known = attained_gpu_s(state, history, now), work_known(state, job)
    return JobView(
        id=job.id, team=job.spec.team, priority=max(priority_of(state, job), lent), submitted_us=job.place_us,
        state=_state(attempt), menu=_within_caps(looker, job, menu_request(state, job)),
        remaining_steps=remaining_steps(state, job),
        devices=tuple(lease.device for lease in leases if lease.state is LeaseState.HELD),
        plan=generation.plan if generation is not None else None,
        preemptible=attempt is not None and proposed is None and preemptible(state, job, attempt, now),
        avoid=(*avoid, *(node for node in closed_nodes(state, job, now) if node not in avoid)),
        blocked=":".join(obstacle) if obstacle is not None else "",
        retry_at_us=job.retry_at_us, device_kinds=job.spec.device_kinds,
        work_known=known, past_gpu_s=() if known else past.like(job),
        attained_gpu_s=attained, changed_us=_changed_us(state, job, history),
        changes=_changes(state, history),
        preferred=job.spec.preferred_devices,
        promised=tuple(lease.device for lease in leases if lease.state is LeaseState.PROMISED),
        user=job.user, queue=job.spec.queue, guaranteed=guaranteed(state, job), preemptions=job.preemptions,
        max_preemptions=job.spec.max_preemptions, observed=tuple(state.observed.get(job.id, {}).values()),
        live=attempt is not None and changes_live(state, attempt), out_of_range=out_of_range(state, job),
        lost_s=_lost_s(job, attempt, now),
    )


def _lost_s(job: Job, attempt: Attempt | None, now: int) -> float:
    """What a stop would cost a training that writes no checkpoints. What a command keeps is its own affair."""
    if attempt is None or attempt.kind is not AttemptKind.TRAIN or attempt.running_us is None:
        return 0.0
    return (now - attempt.running_us) / 1e6 if job.spec.checkpoint is None else 0.0


def _within_caps(looker: Looker, job: Job, request: MenuRequest) -> MenuRequest:
    """No more devices than the caps leave; what a job has it may keep."""
    most = looker.most(job)
    if most == request.max_devices:
        return request
    allowed = tuple(count for count in request.allowed_devices if count <= most)
    return replace(request, max_devices=most, allowed_devices=allowed or request.allowed_devices)


def _leases(looker: Looker, attempt: Attempt | None, generation: Generation | None) -> list[Lease]:
    """Of the shape that the attempt has, or is about to take on: who leaves gives its device back."""
    if attempt is None or generation is None:
        return []
    leases = looker.leases.get((attempt.job, attempt.number), [])
    if attempt.state is AttemptState.STOPPING:
        return leases
    return [lease for lease in leases if lease.member in generation.ranks]


def _changes(state: State, history: list[Attempt]) -> int:
    """How often the job's shape has changed: by new attempts, and by generations within one."""
    shapes = [max(1, sum(one.ran for one in state.generations_of(attempt.job, attempt.number))) for attempt in history]
    return max(0, sum(shapes) - 1)


def _changed_us(state: State, job: Job, history: list[Attempt]) -> int:
    if not history:
        return job.submitted_us
    last = history[-1]
    return last.ended_us or max(last.starting_us or last.created_us, state.changed_us.get(job.id, 0))


def _state(attempt: Attempt | None) -> str:
    if attempt is None:
        return JobState.PENDING
    return JobState.STOPPING if attempt.state is AttemptState.STOPPING else JobState.RUNNING


def menu_request(state: State, job: Job) -> MenuRequest:
    """What bounds the job's choice; the first training plan has pinned its micro-batch size (LIFECYCLE 7)."""
    if job.spec.is_command:
        return command_request(job.spec)
    spec, probed = job.spec, state.probed(job)
    return MenuRequest(
        profiles=probed.profiles, global_batch=job.global_batch or probed.global_batch or 1,
        min_devices=spec.min_devices, max_devices=spec.max_devices, allowed_devices=spec.allowed_devices,
        microbatch_size=job.microbatch_size or spec.microbatch_size, microbatches=spec.microbatches,
        stages=spec.stages, replicas=spec.replicas, schedule=spec.schedule, measured=state.measured.get(job.spec_key),
    )
