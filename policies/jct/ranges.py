"""Around any policy: a running job whose owner has changed its range of sizes is brought back into it first.

1. One that has too many devices shrinks to the largest size of its range that has a plan, on its own devices where
   that can be. Nothing protects it: its owner asked for it.
2. One that has too few grows to the smallest, once devices are free that nobody is waiting for who comes before it: a
   job of higher priority, or one as high that is older and would fit there. Nobody is stopped for it.
3. The policy is then asked about the cluster as it will be. It leaves a job that changes alone; to one that could not,
   its present size counts as one of its range, so that it goes on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from policies.ir.plan import ParallelPlan
from policies.jct.demands import Demands, room_name
from policies.jct.offers import offered
from policies.jct.placement import near
from policies.jct.policy import Policy
from policies.jct.problem import NOTHING, JobDemand, NodeRoom, Option, Placement
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.waiting import hopeless, nothing_fits
from policies.model.cluster import ClusterSnapshot, DeviceView, JobView
from policies.model.decision import Decisions, Resize, Wait
from policies.planner import device_counts

CODE = "OutOfRange"
"""The reason of a running job that cannot be brought into its range yet."""


class InRange:
    """A policy that asks another once each job has a size of its range, or cannot have one now."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        if not any(job.out_of_range for job in snapshot.jobs):
            return self.policy.decide(snapshot, effort)
        first = _Pass(snapshot)
        first.run()
        then = self.policy.decide(first.after(), effort)
        after = {resize.job: len(resize.devices) for resize in then.resizes}
        waits = (wait for wait in first.waits if after.get(wait.job) not in first.allowed[wait.job])
        return replace(then, resizes=(*first.resizes, *then.resizes), waits=(*then.waits, *waits))

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        return self.policy.terms(snapshot)


class _Pass:
    """rooms, devices, jobs: as they are after what has been decided so far. allowed: sizes of each job that is out of
    its range."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot, self.demands = snapshot, Demands(snapshot)
        self.ledger = self.demands.ledger
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.devices = {device.id: device for device in snapshot.devices}
        self.resizes: list[Resize] = []
        self.waits: list[Wait] = []
        self.allowed = {job.id: device_counts(job.menu) for job in snapshot.jobs if job.out_of_range}
        self.wrong = sorted((job for job in snapshot.jobs if job.out_of_range), key=_place_in_line)
        self.rooms = Rooms.of(self.demands.problem(self.wrong))

    def run(self) -> None:
        """First those that give devices up, then those that want some."""
        for job in self.wrong:
            smaller = [option for option in self._options(job) if option.devices < len(job.devices)]
            if (found := self._find(job, smaller)) is not None:
                self._commit(job, *found)
        for job in self.wrong:
            if self.jobs[job.id].out_of_range:
                self._grow(job)

    def _grow(self, job: JobView) -> None:
        options = self._options(job)
        larger = [option for option in options if option.devices > len(job.devices)]
        if not options:
            self._goes_on(job, nothing_fits(job.menu, self.ledger.kinds_of(job)))
        elif not larger:
            self._goes_on(job, "none of its plans fits where it may run at present.")
        elif (found := self._find(job, larger)) is None:
            self._goes_on(job, self._lacks(job, larger))
        elif (first := self._ahead_of(job)) is not None:
            self._goes_on(job, f"job {first.id} comes first, and waits for devices too.")
        else:
            self._commit(job, *found)

    def after(self) -> ClusterSnapshot:
        return replace(self.snapshot, jobs=tuple(self.jobs.values()), devices=tuple(self.devices.values()))

    def _options(self, job: JobView) -> list[Option]:
        """Of its range, the nearest size first, and of one size the fastest."""
        allowed, now = self.allowed[job.id], len(job.devices)
        found = [option for option in offered(job, self.ledger) if option.devices in allowed]
        return sorted(found, key=lambda option: (abs(option.devices - now), option.step_time_s))

    def _find(self, job: JobView, options: Iterable[Option]) -> tuple[Option, Placement] | None:
        """The first that fits now, and where. A job that has no device which is offered is left alone, as ever."""
        demand = self.demands.demand(job)
        self.rooms.give(demand.placement, demand)
        places = ((option, self._place(option, demand)) for option in options if demand.placement)
        found = next((place for place in places if place[1]), None)
        self.rooms.take(demand.placement, demand)
        return found

    def _place(self, option: Option, demand: JobDemand) -> Placement:
        """On its own devices, whatever caps say; else on its own nodes, else beside what it has, else anywhere."""
        own = [node for node in self.rooms.nodes if node.id in demand.placement]
        if placement := _only(own, demand.placement).find(option, demand):
            return placement
        if not self.rooms.allows(demand, option.devices):
            return NOTHING
        near_it = {node.id: self.rooms.free(node.id) for node in own}
        return (
            _only(own, near_it).find(option, demand)
            or self._beside(option, demand)
            or self.rooms.find(option, demand)
        )

    def _beside(self, option: Option, demand: JobDemand) -> Placement:
        """All that it has, and what it lacks elsewhere; nothing where it has more, or the plan wants other nodes."""
        more = option.devices - demand.devices
        usable = all(self.rooms.kinds[id] == option.kind and id not in demand.avoid for id in demand.placement)
        if option.per_node or more <= 0 or not usable:
            return NOTHING
        self.rooms.take(demand.placement, demand)
        rest = self.rooms.find(replace(option, devices=more), demand)
        self.rooms.give(demand.placement, demand)
        return Counter(demand.placement) + Counter(rest) if rest else NOTHING

    def _commit(self, job: JobView, option: Option, placement: Placement) -> None:
        assert isinstance(option.plan, ParallelPlan)
        demand = self.demands.demand(job)
        self.rooms.give(demand.placement, demand)
        self.rooms.take(placement, demand)
        chosen = [device for room, count in placement.items() for device in self._pick(job, room, count)]
        ids = tuple(device.id for device in near(chosen, option.plan, next(iter(job.menu.profiles), None)))
        self.resizes.append(Resize(job.id, ids, option.plan, option.step_time_s))
        for device in [self.devices[id] for id in job.devices if id in self.devices and id not in ids]:
            self.devices[device.id] = replace(device, holder=None)
        for device in chosen:
            free = device.holder in (None, job.id)
            self.devices[device.id] = replace(device, holder=job.id) if free else replace(device, promised=job.id)
        changed = replace(job, devices=ids, plan=option.plan, preemptible=False, out_of_range=False)
        self.jobs[job.id] = changed

    def _pick(self, job: JobView, room: str, count: int) -> list[DeviceView]:
        """Of a room its own devices first, then the calmest."""
        there = [d for d in self.devices.values() if d.offered and room_name(d.node, d.kind) == room]
        usable = [device for device in there if device.id in job.devices or self.demands.is_free(device)]
        return sorted(usable, key=lambda device: (device.id not in job.devices, device.slowdown))[:count]

    # --- who cannot -----------------------------------------------------------------------------------------

    def _ahead_of(self, job: JobView) -> JobView | None:
        """A job that waits for devices which this one would take."""
        kinds = set(self.ledger.kinds_of(job))
        for other in self.snapshot.jobs:
            if not other.pending or _place_in_line(other) > _place_in_line(job):
                continue
            if not kinds & set(self.ledger.kinds_of(other)) or hopeless(self.ledger, other) is not None:
                continue
            if other.priority > job.priority or self._fits(self.demands.demand(other)):
                return other
        return None

    def _fits(self, demand: JobDemand) -> bool:
        return any(self.rooms.find(option, demand) for option in demand.menu)

    def _goes_on(self, job: JobView, why: str) -> None:
        low, high, now = job.menu.min_devices, job.menu.max_devices, len(job.devices)
        counts = (now, *self.allowed[job.id])
        menu = replace(job.menu, min_devices=min(counts), max_devices=max(counts), allowed_devices=counts)
        self.jobs[job.id] = replace(job, menu=menu)
        range_ = f"{low}" if low == high else f"{low} to {high}"
        text = f"Its range is {range_} device{'s' * (high > 1)} now; it goes on with {now} until then: {why}"
        self.waits.append(Wait(job.id, CODE, text))

    def _lacks(self, job: JobView, larger: Sequence[Option]) -> str:
        """What keeps it from growing, though nobody comes first."""
        demand = self.demands.demand(job)
        if not demand.placement:
            return "the devices that it has are drained, reserved or away."
        more = larger[0].devices - demand.devices
        if not self.rooms.allows(demand, more):
            return f"it needs {more} more, and a cap of its team, user or queue leaves it fewer."
        free = max(self.rooms.free_of.get(kind.name, 0) for kind in self.ledger.kinds_of(job))
        if free < more:
            return f"it needs {more} more, and {free or 'none'} {'are' if free > 1 else 'is'} free."
        return f"it needs {more} more, and those that are free are not so placed that its plan fits."


def _only(nodes: Iterable[NodeRoom], free: Placement) -> Rooms:
    """So many devices of some nodes."""
    return Rooms(node.with_free(free[node.id]) for node in nodes)


def _place_in_line(job: JobView) -> tuple[int, int, int]:
    return -job.priority, job.submitted_us, job.id
