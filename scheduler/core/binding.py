"""The binding reason of a wait: what a policy cannot know, since it never sees what may not be used.

A policy says that devices are lacking. If those that are drained, reserved or away would be enough, that is the reason
to tell; so it is if a job of lower priority has them and may not be stopped before its first checkpoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from policies.model.decision import Wait
from scheduler.core.contention import slowdown_of
from scheduler.core.entities import AttemptState, Device, Job, LeaseState, NodeState
from scheduler.core.preemptible import guaranteed, preemptible
from scheduler.core.reserved import closed_nodes, drain_of
from scheduler.core.snapshot import offered, priority_of
from scheduler.core.state import State

_COMPETING = ("Resources", "GangPartial", "Priority")
_LACKING = (*_COMPETING, "TooLarge", "NoSuchGPUType", "Draining", "Reservation")

Kinds = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Room:
    """What jobs that want certain kinds, and may not use certain nodes, find: how many devices are free, and those that
    something keeps from them: code, how many, and what to say of them. slowed: of the free ones, by neighbours."""

    free: int
    withheld: tuple[tuple[str, int, str], ...]
    slowed: tuple[Device, ...]


@dataclass(slots=True)
class Binder:
    """Looks at one state for many jobs. What jobs have in common is found once: thousands may wait.

    waits: of all jobs, as the policy gave them: only who waits for devices comes before others who do."""

    state: State
    now: int
    waits: Iterable[Wait] = ()
    _taken: set[str] = field(init=False)
    _unsaved: list[tuple[int, int, list[Device]]] = field(init=False)
    _first: tuple[int, int, int] | None = field(init=False)
    _rooms: dict[tuple[Kinds, tuple[str, ...]], _Room] = field(default_factory=dict)
    _shielded: dict[tuple[Kinds, int], tuple[tuple[int, ...], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = self.state
        kept = (device for start, _ in state.resizing.values() for device in start.devices)
        self._taken = {*(lease.device for lease in state.leases.values()), *kept}
        self._unsaved = list(_unsaved(state, self.now))
        competing = (state.jobs.get(wait.job) for wait in self.waits if wait.code in _COMPETING)
        self._first = min((self._order(job) for job in competing if job is not None), default=None)

    def binding(self, wait: Wait) -> Wait:
        """The wait with its binding code and sentence."""
        job = self.state.jobs.get(wait.job)
        if job is None or wait.code not in _LACKING:
            return wait
        need, room = job.spec.min_devices, self._room(job)
        if room.free >= need:
            return self._unplaceable(job, wait, room)
        have = f"It needs {need} device(s) and could have {room.free}"
        for code, count, how in room.withheld:
            if count and room.free + count >= need:
                return replace(wait, code=code, text=f"{have}; {count} more {how}.")
        if (why := self._unstoppable(job, need - room.free)) is not None:
            return replace(wait, code="CheckpointMissing", text=f"{have}; {why}")
        return wait

    def _order(self, job: Job) -> tuple[int, int, int]:
        return -priority_of(self.state, job), job.place_us, job.id

    def _unplaceable(self, job: Job, wait: Wait, room: _Room) -> Wait:
        """Enough is free, and nobody comes first: then its plans do not fit where it is free, or neighbours make it so
        slow there that waiting is better."""
        free = room.free
        if wait.code != "Priority" or (self._first is not None and self._first < self._order(job)):
            return wait
        if room.slowed and free - len(room.slowed) < job.spec.min_devices:
            worst = max(slowdown_of(self.state, device.id) for device in room.slowed)
            text = (
                f"{free} device(s) are free, but neighbours slow {len(room.slowed)} of them ({_names(room.slowed)}): a "
                f"step takes up to {worst:g} times as long there. Others are calmer."
            )
            return replace(wait, code="Interference", text=text)
        text = f"{free} device(s) are free, but not as many, or not so placed, as a plan that is worth starting needs."
        return replace(wait, code="Topology", text=text)

    def _room(self, job: Job) -> _Room:
        key = (job.spec.device_kinds, closed_nodes(self.state, job, self.now))
        if key not in self._rooms:
            self._rooms[key] = self._look(*key)
        return self._rooms[key]

    def _look(self, kinds: Kinds, closed: tuple[str, ...]) -> _Room:
        state = self.state
        known = [device for device in state.devices.values() if _suits(kinds, device)]
        idle = [device for device in known if device.id not in self._taken]
        free = [device for device in idle if device.node not in closed and offered(state, device.id)]
        here = [device for device in idle if _is_up(state, device)]
        drained = [device for device in here if drain_of(state, device.id) is not None]
        reserved = [d for d in here if d.node in closed and drain_of(state, d.id) is None]
        away = [device for device in known if not _is_up(state, device)]  # what ran there gives way when it is back
        withheld = (
            ("Draining", len(drained), f"are drained ({_names(drained)})"),
            ("Reservation", len(reserved), f"are reserved ({_names(reserved)})"),
            ("NodeDown", len(away), f"are on nodes that do not answer ({_names(away)})"),
        )
        slowed = tuple(device for device in free if slowdown_of(state, device.id) > 1.0)
        return _Room(len(free), withheld, slowed)

    def _unstoppable(self, job: Job, lacking: int) -> str | None:
        """Jobs of lower priority that have enough, and whose work would be lost if they were stopped now."""
        key = (job.spec.device_kinds, priority_of(self.state, job))
        if key not in self._shielded:
            self._shielded[key] = self._look_for_shielded(*key)
        ids, devices = self._shielded[key]
        if not ids or devices < lacking:
            return None
        names = ", ".join(map(str, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        what = f"job {names} of lower priority has" if len(ids) == 1 else f"jobs {names} of lower priority have"
        return f"{what} {devices}, and may not be stopped before a checkpoint."

    def _look_for_shielded(self, kinds: Kinds, priority: int) -> tuple[tuple[int, ...], int]:
        lower = [(id, devices) for other, id, devices in self._unsaved if other < priority]
        return tuple(id for id, _ in lower), sum(_suits(kinds, device) for _, devices in lower for device in devices)


def _suits(kinds: Kinds, device: Device) -> bool:
    return device.healthy and (not kinds or device.kind in kinds)


def _is_up(state: State, device: Device) -> bool:
    node = state.nodes.get(device.node)
    return node is not None and node.state is NodeState.UP and node.id in state.said_hello


def _names(devices: Sequence[Device]) -> str:
    nodes = list(dict.fromkeys(device.node for device in devices))
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def _unsaved(state: State, now: int) -> Iterator[tuple[int, int, list[Device]]]:
    """Running jobs that may not be stopped before they have saved: priority, id, and the devices they hold."""
    held: dict[int, list[Device]] = {}
    for lease in state.leases.values():
        if lease.state is LeaseState.HELD:
            held.setdefault(lease.job, []).append(state.devices[lease.device])
    for id, devices in held.items():
        job, attempt = state.jobs.get(id), state.open_attempt(id)
        if job is None or attempt is None or attempt.state is not AttemptState.RUNNING or not job.spec.preemptible:
            continue
        spent = job.spec.max_preemptions is not None and job.preemptions >= job.spec.max_preemptions
        kept = spent or guaranteed(state, job) > 0
        saved = (job.saved_step or 0) > (attempt.resumed_step or 0)
        if job.spec.checkpoint is not None and not saved and not kept and not preemptible(state, job, attempt, now):
            yield priority_of(state, job), id, devices
