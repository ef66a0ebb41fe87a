"""What keeps a waiting job from starting whatever is free: a begin time, jobs it waits for, its array, queue or caps.

The code is one of the published reasons; the sentence has the numbers.
"""

from collections import Counter
from dataclasses import dataclass, field

from scheduler.core.caps import Use, any_caps, too_much, use_of
from scheduler.core.entities import Job, JobState, Lease, Wanted
from scheduler.core.state import State

Obstacle = tuple[str, str]
UNSEEN: Obstacle = ("Pending", "the next scheduling pass will look at it")


def obstacle_of_its_own(job: Job, now: int) -> Obstacle | None:
    """What its own description says, whatever else the cluster does."""
    if job.waits_for:
        parents = ", ".join(str(parent) for parent, _ in job.waits_for)
        return "Dependency", f"waits for job{'s' if len(job.waits_for) > 1 else ''} {parents} to end"
    begin_us = job.spec.begin_us
    if begin_us is not None and now < begin_us:
        return "BeginTime", f"begins in {(begin_us - now) / 1e6:.0f} s, as was asked for"
    return None


@dataclass(slots=True)
class Looker:
    """Looks at one state for many jobs. active: running tasks of each array; they grow as tasks are let through.

    limited: whether there is any cap at all. leases: by job and attempt. held: devices of each job."""

    state: State
    now: int
    use: Use
    active: Counter[int] = field(default_factory=Counter)
    limited: bool = True
    leases: dict[tuple[int, int], list[Lease]] = field(default_factory=dict)
    held: Counter[int] = field(default_factory=Counter)

    @classmethod
    def at(cls, state: State, now: int) -> "Looker":
        active = Counter(
            job.array for job in state.jobs.values() if job.array is not None and job.state is JobState.ACTIVE
        )
        leases: dict[tuple[int, int], list[Lease]] = {}
        for lease in state.leases.values():
            leases.setdefault((lease.job, lease.attempt), []).append(lease)
        held = Counter(job for job, _ in {(lease.job, lease.device) for lease in state.leases.values()})
        return cls(state, now, use_of(state), active, any_caps(state), leases, held)

    def most(self, job: Job) -> int:
        """Devices that the job may have, by its own description and by caps; what it has it may keep."""
        left = self.use.left(self.state, job) if self.limited else None
        wanted = job.spec.max_devices
        return wanted if left is None else max(job.spec.min_devices, min(wanted, left + self.held[job.id]))

    def obstacle(self, job: Job) -> Obstacle | None:
        """Of a queued job. An array lets its next task through once, so ask for its tasks in order."""
        spec = job.spec
        if (own := obstacle_of_its_own(job, self.now)) is not None:
            return own
        if (queue := self.state.queues.get(spec.queue)) is not None and queue.paused:
            return "QueuePaused", f"queue {spec.queue!r} is paused; an operator may resume it"
        if (over := self._over_cap(job)) is not None:
            return over
        if job.array is not None and spec.max_parallel is not None:
            if self.active[job.array] >= spec.max_parallel:
                return "ArrayLimit", f"{self.active[job.array]} of at most {spec.max_parallel} tasks of its array run"
            self.active[job.array] += 1
        return None

    def _over_cap(self, job: Job) -> Obstacle | None:
        """The smallest gang would be too much; devices that do not exist stand for those it would get."""
        if not self.limited:
            return None
        imagined = [f"any/{number}" for number in range(job.spec.min_devices)]
        return too_much(self.state, self.use, job, imagined)


def may_run(job: Job) -> bool:
    return job.state is JobState.QUEUED and job.wanted is Wanted.RUN
