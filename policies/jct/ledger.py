"""The books of one pass: which devices are free, soon free, kept back, and when running jobs end."""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge

from policies.jct.menu import Menu, build_menu, step_time_of
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView
from policies.model.device import DeviceKind

PROBE_S = 60.0
"""The longest a probe takes."""


class Ledger:
    """Made from a snapshot, changed by one pass: `take` gives devices away, `keep` holds free ones back."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.running = [job for job in snapshot.jobs if job.state == JobState.RUNNING]
        self._unstoppable_below: dict[int, list[int]] = {}
        stopping = {job.id for job in snapshot.jobs if job.state == JobState.STOPPING}
        memory: dict[str, list[int]] = {}
        self._free: dict[str, dict[str, DeviceView]] = {}
        self._held: dict[int, list[DeviceView]] = {}
        self._total: dict[str, Counter[str]] = {}
        self.kind_held: dict[int, str] = {}
        self.devices = {device.id: device for device in snapshot.devices if device.offered}
        for device in self.devices.values():
            memory.setdefault(device.kind, []).extend([] if device.memory_bytes is None else [device.memory_bytes])
            self._total.setdefault(device.kind, Counter())[device.node] += 1
            free = self._free.setdefault(device.kind, {})
            for job in (device.holder, device.promised):
                if job is not None:
                    self.kind_held.setdefault(job, device.kind)
            if device.promised is None and (device.holder is None or device.holder in stopping):
                free[device.id] = device
            elif device.promised is None and device.holder is not None:
                self._held.setdefault(device.holder, []).append(device)
        self.kinds = {name: DeviceKind(name, min(known, default=None)) for name, known in sorted(memory.items())}
        self._kept: list[tuple[int, int, str, int]] = []
        self._menus: dict[int, Menu] = {}
        self._seconds: dict[int, float | None] = {}
        self._ends: dict[str, list[tuple[float, int]]] = {}

    def kinds_of(self, job: JobView) -> tuple[DeviceKind, ...]:
        """The kinds that the job may use and the cluster has."""
        return tuple(kind for name, kind in self.kinds.items() if not job.device_kinds or name in job.device_kinds)

    def menu(self, job: JobView) -> Menu:
        if job.id not in self._menus:
            self._menus[job.id] = build_menu(job.menu, self.kinds_of(job))
        return self._menus[job.id]

    def unstoppable_below(self, priority: int) -> list[int]:
        """Running jobs of lower priority that may not be stopped yet."""
        if priority not in self._unstoppable_below:
            self._unstoppable_below[priority] = [
                job.id for job in self.running if not job.preemptible and job.priority < priority
            ]
        return self._unstoppable_below[priority]

    def total(self, kind: str, avoid: Sequence[str] = ()) -> int:
        nodes = self._total.get(kind, Counter())
        return nodes.total() - sum(nodes[node] for node in set(avoid))

    def free(self, job: JobView, kind: str) -> list[DeviceView]:
        """Devices of a kind that the job could use, whether or not they are kept for another.

        Those of a stopping job count: they are promised, so that jobs which wait for the end of a gang share all of
        its devices and not just those that happen to come free first.
        """
        devices = self._free[kind].values()
        return [device for device in devices if device.node not in job.avoid] if job.avoid else list(devices)

    def free_count(self, job: JobView, kind: str) -> int:
        return len(self.free(job, kind)) if job.avoid else len(self._free[kind])

    def held(self, holder: int, job: JobView, kind: str) -> list[DeviceView]:
        """Devices of a running job that another could use."""
        return [d for d in self._held.get(holder, ()) if d.kind == kind and d.node not in job.avoid]

    def take(self, devices: Iterable[str]) -> None:
        """Give free devices away."""
        for device in devices:
            for free in self._free.values():
                free.pop(device, None)

    def take_from(self, victim: int) -> None:
        """A running job's devices are spoken for."""
        self._held.pop(victim, None)
        self._ends.clear()

    def keep(self, job: JobView, kind: str, count: int) -> None:
        """Hold free devices back for a job that cannot start yet."""
        self._kept.append((job.id, job.priority, kind, count))

    def kept_from(self, job: JobView, kind: str) -> int:
        """Free devices kept back for other jobs of equal or higher priority."""
        return sum(
            count
            for owner, priority, of, count in self._kept
            if of == kind and owner != job.id and priority >= job.priority
        )

    def kept_for_probed(self, kind: str, priority: int) -> list[tuple[JobView, int]]:
        """Jobs of at least this priority that await their menu, with the devices kept for each."""
        kept = ((self.jobs[owner], count) for owner, at, of, count in self._kept if of == kind and at >= priority)
        return [(job, count) for job, count in kept if not job.menu.profiles]

    def seconds_left(self, job: JobView) -> float | None:
        """Until a running job ends; None where it cannot be estimated."""
        if job.id not in self._seconds:
            self._seconds[job.id] = self._estimate(job)
        return self._seconds[job.id]

    def _estimate(self, job: JobView) -> float | None:
        if job.plan is None:
            return PROBE_S
        kind = self.kind_held.get(job.id)
        if kind is None or not job.menu.profiles or job.plan.layer_count != len(job.menu.profiles[0].layers):
            return None
        return job.remaining_steps * step_time_of(job.menu, job.plan, self.kinds[kind])

    def free_in_s(
        self, job: JobView, kind: str, needed: int, starting: Iterable[tuple[float, int]] = ()
    ) -> tuple[float | None, int]:
        """When `needed` more devices of a kind are free, and how many are left over then.

        Running jobs end as predicted, and nobody else starts. starting: (seconds, devices) of those that start now.
        """
        if job.avoid:
            ends = self._ending(job, kind)
        else:
            if kind not in self._ends:
                self._ends[kind] = self._ending(job, kind)
            ends = self._ends[kind]
        for seconds, devices in merge(ends, sorted(starting)):
            needed -= devices
            if needed <= 0:
                return seconds, -needed
        return (0.0, -needed) if needed <= 0 else (None, 0)

    def _ending(self, job: JobView, kind: str) -> list[tuple[float, int]]:
        """(seconds, devices) of the running jobs whose end can be predicted, soonest first."""
        found: list[tuple[float, int]] = []
        for other in self.running:
            devices = len(self.held(other.id, job, kind))
            left = self.seconds_left(other) if devices else None
            if left is not None:
                found.append((left, devices))
        return sorted(found)


def numbers(jobs: Iterable[int]) -> str:
    """ "job 3", "jobs 3 and 4", "jobs 3, 4, 5 and 7 more"."""
    names = [str(job) for job in jobs]
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"
