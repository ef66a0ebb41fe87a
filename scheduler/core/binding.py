"""The binding reason of a wait: what a policy cannot know, since it never sees what may not be used.

A policy says that devices are lacking. If those that are drained, reserved or away would be enough, that is the reason
to tell; so it is if a job of lower priority has them and may not be stopped before its first checkpoint.
"""

from collections.abc import Iterable
from dataclasses import replace

from policies.model.decision import Wait
from scheduler.core.entities import AttemptState, Device, Job, JobState, LeaseState, NodeState
from scheduler.core.reserved import closed_nodes, drain_of
from scheduler.core.snapshot import offered, priority_of
from scheduler.core.state import State

_LACKING = ("Resources", "GangPartial", "TooLarge", "NoSuchGPUType", "Priority")


def binding(state: State, job: Job, wait: Wait, now: int) -> Wait:
    """The wait with its binding code and sentence."""
    if wait.code not in _LACKING:
        return wait
    need, free = job.spec.min_devices, _free(state, job, now)
    if len(free) >= need:
        return _unplaceable(state, job, wait, len(free)) if wait.code == "Priority" else wait
    have = f"It needs {need} device(s) and could have {len(free)}"
    for code, withheld, how in _withheld(state, job, now):
        if withheld and len(free) + len(withheld) >= need:
            return replace(wait, code=code, text=f"{have}; {len(withheld)} more {how}.")
    if (why := _unsaved(state, job, need - len(free))) is not None:
        return replace(wait, code="CheckpointMissing", text=f"{have}; {why}")
    return wait


def _suits(job: Job, device: Device) -> bool:
    return device.healthy and (not job.spec.device_kinds or device.kind in job.spec.device_kinds)


def _taken(state: State) -> set[str]:
    """Devices that somebody has or was promised."""
    kept = (device for start, _ in state.resizing.values() for device in start.devices)
    return {*(lease.device for lease in state.leases.values()), *kept}


def _free(state: State, job: Job, now: int) -> list[Device]:
    taken, closed = _taken(state), closed_nodes(state, job, now)
    return [
        device for device in state.devices.values()
        if _suits(job, device) and device.id not in taken and device.node not in closed and offered(state, device.id)
    ]  # fmt: skip


def _withheld(state: State, job: Job, now: int) -> Iterable[tuple[str, list[Device], str]]:
    """Free devices by what keeps them from the job: code, devices, and what to say of them."""
    taken, closed = _taken(state), closed_nodes(state, job, now)
    idle = [d for d in state.devices.values() if _suits(job, d) and d.id not in taken]
    here = [device for device in idle if _is_up(state, device)]
    drained = [device for device in here if drain_of(state, device.id) is not None]
    yield "Draining", drained, f"are drained ({_names(drained)})"
    reserved = [d for d in here if d.node in closed and drain_of(state, d.id) is None]
    yield "Reservation", reserved, f"are reserved ({_names(reserved)})"
    away = [device for device in idle if not _is_up(state, device)]
    yield "NodeDown", away, f"are on nodes that do not answer ({_names(away)})"


def _is_up(state: State, device: Device) -> bool:
    node = state.nodes.get(device.node)
    return node is not None and node.state is NodeState.UP and node.id in state.said_hello


def _names(devices: list[Device]) -> str:
    nodes = list(dict.fromkeys(device.node for device in devices))
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def _unplaceable(state: State, job: Job, wait: Wait, free: int) -> Wait:
    """Enough is free, and nobody comes first: then its plans do not fit where it is free."""
    order = (-priority_of(state, job), job.place_us, job.id)
    for other in state.jobs.values():
        waits = other.state is JobState.QUEUED and other.id != job.id
        if waits and (-priority_of(state, other), other.place_us, other.id) < order:
            return wait
    text = f"{free} device(s) are free, but not as many, or not so placed, as a plan that is worth starting needs."
    return replace(wait, code="Topology", text=text)


def _unsaved(state: State, job: Job, lacking: int) -> str | None:
    """Jobs of lower priority that have enough, and whose work would be lost if they were stopped now."""
    held: dict[int, int] = {}
    for lease in state.leases.values():
        if lease.state is LeaseState.HELD and _is_unsaved(state, lease.job, priority_of(state, job)):
            held[lease.job] = held.get(lease.job, 0) + _suits(job, state.devices[lease.device])
    if not held or sum(held.values()) < lacking:
        return None
    names = ", ".join(map(str, list(held)[:3])) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
    what = f"job {names} of lower priority has" if len(held) == 1 else f"jobs {names} of lower priority have"
    return f"{what} {sum(held.values())}, and may not be stopped before a checkpoint."


def _is_unsaved(state: State, id: int, priority: int) -> bool:
    job, attempt = state.jobs.get(id), state.open_attempt(id)
    if job is None or attempt is None or attempt.state is not AttemptState.RUNNING or not job.spec.preemptible:
        return False
    saved = (job.saved_step or 0) > (attempt.resumed_step or 0)
    return priority_of(state, job) < priority and job.spec.checkpoint is not None and not saved
