"""The books of one pass: which devices are free, soon free, kept back, and when running jobs end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from policies.jct.menu import Menu, build_menu, step_time_of
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView
from policies.model.device import DeviceKind

PROBE_S = 60.0
"""The longest a probe takes."""


@dataclass
class Ledger:
    """Made from a snapshot, changed by one pass.

    taken: devices given away in this pass. kept: (job, priority, device kind, count) of devices that wait for a
    job which cannot start yet. victims: jobs preempted in this pass.
    """

    snapshot: ClusterSnapshot
    taken: set[str] = field(default_factory=set)
    kept: list[tuple[int, int, str, int]] = field(default_factory=list)
    victims: set[int] = field(default_factory=set)

    @cached_property
    def jobs(self) -> dict[int, JobView]:
        return {job.id: job for job in self.snapshot.jobs}

    @cached_property
    def stopping(self) -> frozenset[int]:
        return frozenset(job.id for job in self.snapshot.jobs if job.state == JobState.STOPPING)

    @cached_property
    def kinds(self) -> dict[str, DeviceKind]:
        """Every kind in the cluster, with the memory of its smallest device."""
        memory: dict[str, list[int]] = {}
        for device in self.snapshot.devices:
            memory.setdefault(device.kind, []).extend([] if device.memory_bytes is None else [device.memory_bytes])
        return {name: DeviceKind(name, min(known, default=None)) for name, known in sorted(memory.items())}

    def kinds_of(self, job: JobView) -> tuple[DeviceKind, ...]:
        """The kinds that the job may use and the cluster has."""
        return tuple(kind for name, kind in self.kinds.items() if not job.device_kinds or name in job.device_kinds)

    def menu(self, job: JobView) -> Menu:
        return build_menu(job.menu, self.kinds_of(job))

    def total(self, kind: str, avoid: Sequence[str] = ()) -> int:
        return sum(device.kind == kind and device.node not in avoid for device in self.snapshot.devices)

    def free(self, job: JobView, kind: str) -> list[DeviceView]:
        """Devices of a kind that the job could use, whether or not they are kept for another.

        Those of a stopping job count: they are promised, so that jobs which wait for the end of a gang share all of
        its devices and not just those that happen to come free first.
        """
        return [
            device
            for device in self.snapshot.devices
            if device.kind == kind
            and (device.holder is None or device.holder in self.stopping)
            and device.promised is None
            and device.id not in self.taken
            and device.node not in job.avoid
        ]

    def kept_from(self, job: JobView, kind: str) -> int:
        """Free devices kept back for other jobs of equal or higher priority."""
        return sum(
            count
            for owner, priority, of, count in self.kept
            if of == kind and owner != job.id and priority >= job.priority
        )

    def held(self, holder: int, job: JobView, kind: str) -> list[DeviceView]:
        """Devices of a running job that another could use."""
        return [
            device
            for device in self.snapshot.devices
            if device.holder == holder
            and device.kind == kind
            and device.promised is None
            and device.id not in self.taken
            and device.node not in job.avoid
        ]

    def seconds_left(self, job: JobView) -> float | None:
        """Until a running job ends; None where it cannot be estimated."""
        if job.plan is None:
            return PROBE_S
        kind = next((device.kind for device in self.snapshot.devices if device.holder == job.id), None)
        if kind is None or not job.menu.profiles or job.plan.layer_count != len(job.menu.profiles[0].layers):
            return None
        return job.remaining_steps * step_time_of(job.menu, job.plan, self.kinds[kind])

    def free_in_s(
        self, job: JobView, kind: str, needed: int, starting: Iterable[tuple[float, int]] = ()
    ) -> tuple[float | None, int]:
        """When `needed` more devices of a kind are free, and how many are left over then.

        Running jobs end as predicted, and nobody else starts. starting: (seconds, devices) of those that start now.
        """
        ends = list(starting)
        for other in self.snapshot.jobs:
            devices = len(self.held(other.id, job, kind)) if other.state == JobState.RUNNING else 0
            left = self.seconds_left(other) if devices else None
            if left is not None:
                ends.append((left, devices))
        for seconds, devices in sorted(ends):
            needed -= devices
            if needed <= 0:
                return seconds, -needed
        return (0.0, -needed) if needed <= 0 else (None, 0)


def numbers(jobs: Iterable[int]) -> str:
    """ "job 3", "jobs 3 and 4"."""
    names = [str(job) for job in jobs]
    if len(names) == 1:
        return f"job {names[0]}"
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"
