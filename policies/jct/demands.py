"""A cluster's snapshot as a plain problem: rooms, demands, caps.

A room is the devices of one kind on one node. Devices that are not offered are in no room, and who holds one is left
alone. Reserved rooms are avoided by all others. Jobs without a menu are probed on one device.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.jct.capacity import Sizes, possible, sizes_of
from policies.jct.ledger import PROBE_S, Ledger
from policies.jct.menu import step_time_of
from policies.jct.offers import offered
from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, TeamView
from policies.model.device import DeviceKind

LEVEL = 10.0
"""Ten points of priority double a job's weight, at most so many times."""
DOUBLINGS = 5.0

FAIR = (-3.0, 1.0)
"""A team that has used nothing of late has twice the weight, one that has used four times its share an eighth."""


@dataclass(slots=True)
class Demands:
    """rooms: offered devices by (node, kind). where: the room's name of each device. reserved: for whom a room is kept.
    stopping: jobs on their way out."""

    snapshot: ClusterSnapshot
    ledger: Ledger = field(init=False)
    rooms: dict[tuple[str, str], list[DeviceView]] = field(init=False)
    where: dict[str, str] = field(init=False)
    reserved: dict[str, str] = field(init=False)
    stopping: frozenset[int] = field(init=False)
    teams: dict[str, TeamView] = field(init=False)
    caps: dict[str, int] = field(init=False)
    _sizes: dict[tuple[str, ...], Sizes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.snapshot)
        self.stopping = frozenset(job.id for job in self.snapshot.jobs if job.state == JobState.STOPPING)
        self.teams = {team.name: team for team in self.snapshot.teams}
        self.caps = _caps(self.snapshot)
        self.rooms = {}
        self.where = {}
        for device in self.snapshot.devices:
            if device.offered:
                self.rooms.setdefault((device.node, device.kind), []).append(device)
                self.where[device.id] = room_name(device.node, device.kind)

        self.reserved = {
            room_name(*key): devices[0].reserved_for for key, devices in self.rooms.items() if devices[0].reserved_for
        }

    def problem(self, jobs: Iterable[JobView]) -> Problem:
        """Jobs that hold nothing but what is not offered keep it, and are left out."""
        demands = tuple(d for job in jobs if (d := self.demand(job)).placement or job.pending)
        caps = dict(self.caps)
        asked = {int(demand.id): demand.devices for demand in demands}
        for job in self.snapshot.jobs:
            for holder in self.holders(job):
                caps[holder] -= len(job.devices) + len(job.promised) - asked.get(job.id, 0)
        policies = {queue.name: queue.policy for queue in self.snapshot.queues if queue.policy}
        return Problem(self.snapshot.now_us / 1e6, self.nodes(), demands, caps=caps, policies=policies)

    def nodes(self) -> tuple[NodeRoom, ...]:
        return tuple(self._room(key, devices) for key, devices in self.rooms.items())

    def is_free(self, device: DeviceView) -> bool:
        return device.promised is None and (device.holder is None or device.holder in self.stopping)

    def holders(self, job: JobView) -> tuple[str, ...]:
        """The caps that count the job."""
        names = f"team {job.team}", f"user {job.user}", f"queue {job.queue}"
        return tuple(name for name in names if name in self.caps)

    def demand(self, job: JobView) -> JobDemand:
        held = [*job.devices, *job.promised]
        open_ = [self.where[device] for device in held if device in self.where]
        kinds, avoid = self.ledger.kinds_of(job), self._avoid(job)
        menu = offered(job, self.ledger, self._slowdown(held))
        known = bool(menu)
        steps: float | None = job.remaining_steps if job.work_known else None
        if not known and job.pending:
            menu, steps = Options(Option(kind.name, 1, PROBE_S, 0.0, None) for kind in kinds), 1.0
        elif not known:
            menu, steps = Options([self._as_it_runs(job, len(held))]), 1.0
        else:
            menu = possible(menu, self._sizes_without(avoid), job.plan, len(held))
            if not job.pending and not any(o.plan == job.plan and o.devices == len(held) for o in menu):
                menu = Options([*menu, self._as_it_runs(job, len(held))])
        shield = 0 if job.pending else min(job.shield, len(held))
        return JobDemand(
            id=str(job.id), age_s=(self.snapshot.now_us - job.submitted_us) / 1e6, menu=menu, remaining_steps=steps,
            attained_gpu_s=job.attained_gpu_s, restarts=job.changes,
            since_change_s=(self.snapshot.now_us - job.changed_us) / 1e6, weight=self._weight(job),
            placement=dict(Counter(open_)), plan=job.plan,
            frozen=not job.pending and (not job.preemptible or len(open_) < len(held)),
            asked=job.preferred, avoid=avoid, level=job.priority, min_devices=max(1, shield),
            expects=0 if known else job.menu.min_devices - 1, holders=self.holders(job), shield=shield,
            queue=job.queue, past_gpu_s=job.past_gpu_s, slowdown=self._slowdown(held),
            stop_loses_s=job.lost_s, change_loses_s=0.0 if job.live else job.lost_s,
        )  # fmt: skip

    def _sizes_without(self, avoid: tuple[str, ...]) -> Sizes:
        if avoid not in self._sizes:
            names = set(avoid)
            rooms = ((key[1], len(devices)) for key, devices in self.rooms.items() if room_name(*key) not in names)
            self._sizes[avoid] = sizes_of(rooms)
        return self._sizes[avoid]

    def _room(self, key: tuple[str, str], devices: list[DeviceView]) -> NodeRoom:
        return NodeRoom(
            room_name(*key), key[1], len(devices), sum(self.is_free(device) for device in devices),
            devices[0].switch, max(device.slowdown for device in devices),
            tuple(d.slowdown for d in sorted(devices, key=lambda d: (not self.is_free(d), d.slowdown))),
        )  # fmt: skip

    def _avoid(self, job: JobView) -> tuple[str, ...]:
        bad = [room_name(node, kind) for node in job.avoid for kind in self.ledger.kinds if (node, kind) in self.rooms]
        kept = [room for room, owner in self.reserved.items() if owner not in (job.team, job.user)]
        return (*bad, *kept)

    def _weight(self, job: JobView) -> float:
        doublings = max(-DOUBLINGS, min(DOUBLINGS, (job.priority - 50) / LEVEL))
        return float(2.0**doublings) * fair_share(self.teams.get(job.team))

    def _slowdown(self, held: list[str]) -> float:
        return max((self.ledger.devices[device].slowdown for device in held if device in self.where), default=1.0)

    def _as_it_runs(self, job: JobView, devices: int) -> Option:
        """The row of a plan that is not on the menu any more."""
        kind = self.ledger.kind_held.get(job.id, "")
        try:
            seconds = step_time_of(job.menu, job.plan, self.ledger.kinds[kind]) if job.plan is not None else PROBE_S
        except (ValueError, KeyError):
            seconds = PROBE_S
        return Option(kind, devices, seconds, DeviceKind(kind).start_s, job.plan)


def room_name(node: str, kind: str) -> str:
    return f"{node}/{kind}"


def fair_share(team: TeamView | None) -> float:
    """A factor of weight: 2 ** (1 - use / share), as in Slurm's fair-share factor 2 ** (-use / share), bounded."""
    if team is None:
        return 1.0
    return float(2.0 ** max(FAIR[0], min(FAIR[1], 1.0 - team.share_used)))


def _caps(snapshot: ClusterSnapshot) -> dict[str, int]:
    views = [
        *((f"team {view.name}", view.max_devices) for view in snapshot.teams),
        *((f"user {view.name}", view.max_devices) for view in snapshot.users),
        *((f"queue {view.name}", view.max_devices) for view in snapshot.queues),
    ]
    return {name: most for name, most in views if most is not None}
