"""Any allocator as a cluster policy: the snapshot becomes a plain problem, its grants become decisions.

Jobs without a menu are probed on one device. A job that cannot run at all gets its reason before the allocator sees it;
one that the allocator lets wait gets its reason afterwards.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from policies.ir.plan import ParallelPlan
from policies.jct.explored import explored, is_command
from policies.jct.ledger import PROBE_S, Ledger
from policies.jct.menu import Menu, build_menu, step_time_of
from policies.jct.problem import Allocator, Grant, JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.terms import Term
from policies.jct.waiting import blocked_wait, hopeless
from policies.jct.work import look_at
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, MenuRequest
from policies.model.decision import Decisions, Preempt, Resize, Start, Wait
from policies.model.device import DeviceKind

LEVEL = 10.0
"""Ten points of priority double a job's weight, at most so many times."""
DOUBLINGS = 5.0


class AllocatingPolicy:
    """A Policy that asks an allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        books = _Books(snapshot)
        waits: list[Wait] = []
        demands: list[JobDemand] = []
        for job in snapshot.jobs:
            if job.state == JobState.STOPPING:
                continue
            if job.pending and (reason := hopeless(books.ledger, job)) is not None:
                waits.append(reason)
            else:
                demands.append(books.demand(job))
        grants = self.allocator.allocate(Problem(snapshot.now_us / 1e6, books.nodes(), tuple(demands)), effort)
        return books.decisions(grants, waits)

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        books = _Books(snapshot)
        kinds = {node.id: node.kind for node in books.nodes()}
        return {job.id: self.allocator.terms(look_at(books.demand(job), kinds)) for job in snapshot.jobs}


@dataclass(slots=True)
class _Books:
    """What a pass needs to translate: devices by node and kind, holders, jobs by name."""

    snapshot: ClusterSnapshot
    ledger: Ledger = field(init=False)
    jobs: dict[str, JobView] = field(init=False)
    rooms: dict[tuple[str, str], list[DeviceView]] = field(init=False)
    where: dict[str, str] = field(init=False)
    stopping: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.snapshot)
        self.jobs = {str(job.id): job for job in self.snapshot.jobs}
        self.stopping = {job.id for job in self.snapshot.jobs if job.state == JobState.STOPPING}
        self.rooms = {}
        self.where = {}
        for device in self.snapshot.devices:
            self.rooms.setdefault((device.node, device.kind), []).append(device)
            self.where[device.id] = _room_name(device.node, device.kind)

    def nodes(self) -> tuple[NodeRoom, ...]:
        return tuple(
            NodeRoom(_room_name(*key), key[1], len(devices), sum(self._is_free(device) for device in devices))
            for key, devices in self.rooms.items()
        )

    def _is_free(self, device: DeviceView) -> bool:
        return device.promised is None and (device.holder is None or device.holder in self.stopping)

    def demand(self, job: JobView) -> JobDemand:
        held = [*job.devices, *job.promised]
        placement = dict(Counter(self.where[device] for device in held if device in self.where))
        offers = options(job.menu, self.ledger.kinds_of(job))
        menu: tuple[Option, ...] = explored(offers, job.observed) if is_command(job.menu) else offers
        steps: float | None = job.remaining_steps if job.work_known else None
        menu_known = bool(menu)
        if not menu and not job.pending:
            menu, steps = (self._as_it_runs(job, len(held)),), 1.0
        elif not menu:
            menu, steps = tuple(Option(k.name, 1, PROBE_S, 0.0, None) for k in self.ledger.kinds_of(job)), 1.0
        elif not job.pending and not any(o.plan == job.plan and o.devices == len(held) for o in menu):
            menu = (*menu, self._as_it_runs(job, len(held)))
        return JobDemand(
            id=str(job.id), age_s=(self.snapshot.now_us - job.submitted_us) / 1e6, menu=menu, remaining_steps=steps,
            attained_gpu_s=job.attained_gpu_s, restarts=job.changes,
            since_change_s=(self.snapshot.now_us - job.changed_us) / 1e6, weight=_weight(job),
            placement=placement, plan=job.plan, frozen=not job.pending and not job.preemptible,
            asked=job.preferred,
            avoid=tuple(_room_name(*key) for key in self.rooms if key[0] in job.avoid), level=job.priority,
            expects=0 if menu_known else job.menu.min_devices - 1, past_gpu_s=job.past_gpu_s,
        )  # fmt: skip

    def _as_it_runs(self, job: JobView, devices: int) -> Option:
        """The row of a plan that is not on the menu any more."""
        kind = self.ledger.kind_held.get(job.id, "")
        try:
            seconds = step_time_of(job.menu, job.plan, self.ledger.kinds[kind]) if job.plan is not None else PROBE_S
        except (ValueError, KeyError):
            seconds = PROBE_S
        return Option(kind, devices, seconds, DeviceKind(kind).start_s, job.plan)

    # --- from grants to decisions ---------------------------------------------------------------------------

    def decisions(self, grants: Iterable[Grant], waits: list[Wait]) -> Decisions:
        grants = list(grants)
        changing = {int(grant.id) for grant in grants if not self.jobs[grant.id].pending}
        pools = {key: self._pool(devices, changing) for key, devices in self.rooms.items()}
        starts: list[Start] = []
        resizes: list[Resize] = []
        needs: dict[int, int] = {}
        for grant in sorted(grants, key=lambda grant: not self.jobs[grant.id].devices):
            job = self.jobs[grant.id]
            devices = self._devices(job, grant, pools)
            for device in devices:
                if device.holder is not None and device.holder != job.id:
                    needs.setdefault(device.holder, job.id)
            ids = tuple(device.id for device in devices)
            if not ids:
                continue
            if job.pending:
                starts.append(Start(job.id, ids, _plan(grant), grant.step_time_s))
            elif (plan := _plan(grant)) is not None:
                resizes.append(Resize(job.id, ids, plan, grant.step_time_s))
        paused = [int(grant.id) for grant in grants if not grant.placement and not self.jobs[grant.id].pending]
        preempts = [Preempt(victim, needs[victim]) for victim in paused if victim in needs]
        started = {start.job for start in starts}
        waits += self._reasons(started, {wait.job for wait in waits}, starts)
        return Decisions(self.snapshot.version, tuple(starts), tuple(preempts), tuple(waits), tuple(resizes))

    def _pool(self, devices: list[DeviceView], changing: set[int]) -> list[DeviceView]:
        """Devices to hand out, free ones first, so that few stops are waited for."""
        usable = [d for d in devices if d.promised is None and (self._is_free(d) or d.holder in changing)]
        return sorted(usable, key=lambda device: device.holder is not None)

    def _devices(
        self, job: JobView, grant: Grant, pools: dict[tuple[str, str], list[DeviceView]]
    ) -> list[DeviceView]:
        """Its own first; they leave their pools."""
        chosen: list[DeviceView] = []
        for key, pool in pools.items():
            count = grant.placement.get(_room_name(*key), 0)
            if count:
                pool.sort(key=lambda device: device.holder != job.id)
                chosen += pool[:count]
                del pool[:count]
        return chosen

    def _reasons(self, started: set[int], explained: set[int], starts: list[Start]) -> list[Wait]:
        for start in starts:
            self.ledger.take(start.devices)
        found: list[Wait] = []
        for job in self.snapshot.jobs:
            if job.pending and job.id not in started and job.id not in explained:
                menu = options(job.menu, self.ledger.kinds_of(job))
                kind, needed = min(((o.kind, o.devices) for o in menu), key=lambda o: o[1], default=("", 1))
                kind = kind or next(iter(self.ledger.kinds))
                found.append(blocked_wait(self.ledger, job, kind, needed, None))
        return found


def _room_name(node: str, kind: str) -> str:
    return f"{node}/{kind}"


def _weight(job: JobView) -> float:
    return float(2.0 ** max(-DOUBLINGS, min(DOUBLINGS, (job.priority - 50) / LEVEL)))


def _plan(grant: Grant) -> ParallelPlan | None:
    assert grant.plan is None or isinstance(grant.plan, ParallelPlan)
    return grant.plan


@lru_cache(maxsize=4096)
def options(request: MenuRequest, kinds: tuple[DeviceKind, ...]) -> Options:
    """A job's menu: measured rows where there are any, else the planner's."""
    if request.measured is None:
        return _planned(build_menu(request, kinds))
    names = {kind.name for kind in kinds}
    return Options(
        Option(row.kind, row.devices, row.step_time_s, row.restart_s, row.plan, row.per_node)
        for row in request.measured.rows
        if row.kind in names and request.min_devices <= row.devices <= request.max_devices
    )


def _planned(menu: Menu) -> Options:
    return Options(
        Option(entry.device_kind, entry.devices, entry.step_time_s, entry.resize_s, entry.plan)
        for entry in menu.entries
    )
