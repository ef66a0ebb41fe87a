"""Drains and reservations: where new work may not go.

A drained node or device keeps what runs on it and gets nothing new. A reserved node is for one team, or for nobody;
before it begins, only jobs that will be gone by then, or can be stopped without loss, are started there; when it
begins, all others are stopped with a checkpoint.
"""

from collections.abc import Iterator

from scheduler.core.entities import Job
from scheduler.core.records import Drain, Reservation
from scheduler.core.settings import us
from scheduler.core.state import State


def drain_of(state: State, device_id: str) -> Drain | None:
    """The device's own drain, or its node's."""
    device = state.devices.get(device_id)
    own = state.drains.get(f"device/{device_id}")
    return own or (state.drains.get(f"node/{device.node}") if device is not None else None)


def in_force(state: State, now: int) -> Iterator[Reservation]:
    return (item for item in state.reservations.values() if item.from_us <= now < item.until_us)


def closed_nodes(state: State, job: Job, now: int) -> tuple[str, ...]:
    """Nodes where the job may not start because of reservations."""
    nodes: dict[str, None] = {}
    for item in state.reservations.values():
        if now >= item.until_us or (item.team and item.team == job.spec.team):
            continue
        if item.from_us <= now or not _leaves_in_time(job, now, item.from_us):
            nodes.update(dict.fromkeys(item.nodes))
    return tuple(nodes)


def _leaves_in_time(job: Job, now: int, until: int) -> bool:
    spec = job.spec
    if spec.preemptible and spec.checkpoint is not None:
        return True
    return spec.time_limit_s is not None and now + us(spec.time_limit_s) - job.ran_us + us(spec.grace_s) <= until


def next_moment(state: State, now: int) -> list[int]:
    """When reservations begin and end."""
    return [at for item in state.reservations.values() for at in (item.from_us, item.until_us) if at > now]
