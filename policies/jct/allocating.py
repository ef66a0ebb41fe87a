"""Any allocator as a cluster policy: the snapshot becomes a plain problem, its grants become decisions.

A job that cannot run at all gets its reason before the allocator sees it; one that the allocator lets wait gets its
reason afterwards.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from policies.ir.plan import ParallelPlan
from policies.jct.demands import Demands, room_name
from policies.jct.offers import offered
from policies.jct.placement import near
from policies.jct.problem import Allocator, Grant
from policies.jct.terms import Term
from policies.jct.waiting import blocked_wait, hopeless
from policies.jct.work import look_at
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView
from policies.model.decision import Decisions, Preempt, Resize, Start, Wait

Pools = dict[str, list[DeviceView]]
"""Devices to hand out, by room."""


class AllocatingPolicy:
    """A Policy that asks an allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        demands = Demands(snapshot)
        waits: list[Wait] = []
        asked: list[JobView] = []
        for job in snapshot.jobs:
            if job.state == JobState.STOPPING:
                continue
            if job.pending and (reason := hopeless(demands.ledger, job)) is not None:
                waits.append(reason)
            else:
                asked.append(job)
        problem = demands.problem(asked)
        decisions = _Answer(demands).decisions(self.allocator.allocate(problem, effort), waits)
        settles_s = self.allocator.settles_in_s(problem)
        return replace(decisions, again_in_s=settles_s) if math.isfinite(settles_s) else decisions

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        demands = Demands(snapshot)
        kinds = {node.id: node.kind for node in demands.nodes()}
        works = {job.id: look_at(demands.demand(job), kinds) for job in snapshot.jobs}
        among = list(works.values())
        return {id: self.allocator.terms(work, among) for id, work in works.items()}


class _Answer:
    """From grants to decisions: which devices exactly, who is preempted for whom, and why the others wait."""

    def __init__(self, demands: Demands) -> None:
        self.demands, self.ledger, self.snapshot = demands, demands.ledger, demands.snapshot
        self.jobs = {str(job.id): job for job in self.snapshot.jobs}

    def decisions(self, grants: Iterable[Grant], waits: list[Wait]) -> Decisions:
        grants = list(grants)
        changing = {int(grant.id) for grant in grants if not self.jobs[grant.id].pending}
        pools = {room_name(*key): self._pool(devices, changing) for key, devices in self.demands.rooms.items()}
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
            elif (plan := _plan(grant)) is not None and (plan != job.plan or set(ids) != set(job.devices)):
                resizes.append(Resize(job.id, ids, plan, grant.step_time_s))
        paused = [int(grant.id) for grant in grants if not grant.placement and not self.jobs[grant.id].pending]
        preempts = [Preempt(victim, needs[victim]) for victim in paused if victim in needs]
        started = {start.job for start in starts}
        waits += self._reasons(started, {wait.job for wait in waits}, starts, self._left_of_caps(grants))
        return Decisions(self.snapshot.version, tuple(starts), tuple(preempts), tuple(waits), tuple(resizes))

    def _pool(self, devices: list[DeviceView], changing: set[int]) -> list[DeviceView]:
        """Devices to hand out: the fastest first, and free ones before others, so that few stops are waited for."""
        usable = [d for d in devices if d.promised is None and (self.demands.is_free(d) or d.holder in changing)]
        return sorted(usable, key=lambda device: (device.slowdown, device.holder is not None))

    def _devices(self, job: JobView, grant: Grant, pools: Pools) -> list[DeviceView]:
        """Of devices that are as calm its own first, then those of jobs under the same cap, where a device counts once;
        they leave their pools."""
        own = set(self.demands.holders(job))
        chosen: list[DeviceView] = []

        def wanted(device: DeviceView) -> tuple[float, bool, bool]:
            holder = self.jobs.get(str(device.holder))
            same_cap = bool(holder and own and own & set(self.demands.holders(holder)))
            return device.slowdown, device.holder != job.id, not same_cap

        for room, count in grant.placement.items():
            pool = pools[room]
            pool.sort(key=wanted)
            chosen += pool[:count]
            del pool[:count]
        profiles = job.menu.profiles
        return near(chosen, _plan(grant), profiles[0] if profiles else None)

    def _left_of_caps(self, grants: Iterable[Grant]) -> dict[str, int]:
        """What each capped holder may still have once these grants are carried out."""
        after = {id: len(job.devices) + len(job.promised) for id, job in self.jobs.items()}
        after |= {grant.id: sum(grant.placement.values()) for grant in grants}
        left = dict(self.demands.caps)
        for id, count in after.items():
            for holder in self.demands.holders(self.jobs[id]):
                left[holder] -= count
        return left

    def _over_cap(self, job: JobView, left: Mapping[str, int]) -> Wait | None:
        """The cap that this pass has used up."""
        for holder in self.demands.holders(job):
            if left[holder] < job.menu.min_devices:
                kind, _, name = holder.partition(" ")
                most = self.demands.caps[holder]
                text = f"{kind} {name!r} may have {most} devices; {max(0, left[holder])} are left of them."
                return Wait(job.id, f"Quota{kind.capitalize()}", text)
        return None

    def _reasons(
        self, started: set[int], explained: set[int], starts: list[Start], left: Mapping[str, int]
    ) -> list[Wait]:
        for start in starts:
            self.ledger.take(start.devices)
        found: list[Wait] = []
        for job in self.snapshot.jobs:
            if not job.pending or job.id in started or job.id in explained:
                continue
            if (capped := self._over_cap(job, left)) is not None:
                found.append(capped)
            else:
                found.append(blocked_wait(self.ledger, job, *self._nearest(job), None))
        return found

    def _nearest(self, job: JobView) -> tuple[str, int]:
        """Of the kinds that it may use that on which it lacks least, and how many it needs there: one for its probe."""
        needs: dict[str, int] = {}
        for option in offered(job, self.ledger):
            needs[option.kind] = min(option.devices, needs.get(option.kind, option.devices))
        needs = needs or {kind.name: 1 for kind in self.ledger.kinds_of(job)}
        return min(needs.items(), key=lambda need: (need[1] - self.ledger.free_count(job, need[0]), need[1]))


def _plan(grant: Grant) -> ParallelPlan | None:
    assert grant.plan is None or isinstance(grant.plan, ParallelPlan)
    return grant.plan
