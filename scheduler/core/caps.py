"""Caps of teams, users and queues: how much each has, and what one more job or device would make of it.

Every decision is checked against the sums after all earlier ones, so that a cap holds after every step. A cap that is
lowered below what is in use stops nothing that runs; it only lets nothing new begin.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from scheduler.core.entities import AttemptState, Job, JobState, LeaseState
from scheduler.core.records import Capped
from scheduler.core.state import State

Holder = tuple[str, str]
"""("team", name), ("user", name) or ("queue", name)."""

_CODE = {"team": "QuotaTeam", "user": "QuotaUser", "queue": "QuotaQueue"}


def holders(job: Job) -> tuple[Holder, ...]:
    """Whom a job counts for."""
    return ("team", job.spec.team), ("user", job.user), ("queue", job.spec.queue)


def cap_of(state: State, holder: Holder) -> Capped | None:
    """The record that may limit a holder; None where nobody wrote one."""
    kind, name = holder
    return state.book(kind).get(name)


def any_caps(state: State) -> bool:
    """Whether anything limits devices or running jobs."""
    books = (state.teams, state.users, state.queues)
    caps = (cap for book in books for cap in book.values())
    return any(cap.max_devices is not None or cap.max_running is not None for cap in caps)


@dataclass(slots=True)
class Use:
    """devices: ids held by or promised to each holder's jobs, each once. running: jobs with a gang not stopping."""

    devices: dict[Holder, set[str]] = field(default_factory=dict)
    running: Counter[Holder] = field(default_factory=Counter)

    def take(self, job: Job, devices: Collection[str]) -> None:
        for holder in holders(job):
            self.devices.setdefault(holder, set()).update(devices)

    def left(self, state: State, job: Job) -> int | None:
        """Devices that the job's holders may still have; None where nothing limits them."""
        rooms = [
            cap.max_devices - len(self.devices.get(holder, ()))
            for holder in holders(job)
            if (cap := cap_of(state, holder)) is not None and cap.max_devices is not None
        ]
        return max(0, min(rooms)) if rooms else None


def use_of(state: State) -> Use:
    """What all have now, what is kept for resized jobs included."""
    use = Use()
    for lease in state.leases.values():
        if lease.state is not LeaseState.CLOSED and (job := state.jobs.get(lease.job)) is not None:
            use.take(job, (lease.device,))
    for id, (start, _) in state.resizing.items():
        use.take(state.jobs[id], start.devices)
    for job in state.jobs.values():
        if job.state is JobState.ACTIVE and (_goes_on(state, job) or job.id in state.resizing):
            use.running.update(holders(job))
    return use


def waiting_of(state: State) -> Counter[Holder]:
    """How many jobs of each holder wait."""
    return Counter(
        holder for job in state.jobs.values() if job.state is JobState.QUEUED for holder in holders(job)
    )


def _goes_on(state: State, job: Job) -> bool:
    attempt = state.open_attempt(job.id)
    return attempt is not None and attempt.state is not AttemptState.STOPPING


def too_much(
    state: State, use: Use, job: Job, devices: Collection[str], instead_of: Collection[str] = (), more: int = 1
) -> tuple[str, str] | None:
    """Code and sentence of the cap that forbids this job these devices; None where none does.

    instead_of: devices that it gives up first. more: running jobs that this adds.
    """
    for holder in holders(job):
        cap = cap_of(state, holder)
        if cap is None:
            continue
        has = use.devices.get(holder, set())
        if cap.max_devices is not None and len((has - set(instead_of)) | set(devices)) > cap.max_devices:
            return _CODE[holder[0]], f"{_name(holder)} has {len(has)} of at most {cap.max_devices} devices"
        if cap.max_running is not None and use.running[holder] + more > cap.max_running:
            return "MaxRunning", f"{_name(holder)} runs {use.running[holder]} of at most {cap.max_running} jobs"
    return None


def too_many_pending(state: State, job: Job, count: int) -> str | None:
    """Why `count` more jobs like this one may not wait; None where they may."""
    for holder in holders(job):
        cap = cap_of(state, holder)
        if cap is None or cap.max_pending is None:
            continue
        waiting = sum(
            other.state is JobState.QUEUED and holder in holders(other) for other in state.jobs.values()
        )
        if waiting + count > cap.max_pending:
            return f"{_name(holder)} has {waiting} of at most {cap.max_pending} waiting jobs"
    return None


def _name(holder: Holder) -> str:
    return f"{holder[0]} {holder[1]!r}"


def exceeded(state: State) -> Iterator[str]:
    """Sentences about caps that are exceeded though something was begun under them: there must be none."""
    use = Use()
    newest: dict[Holder, int] = {}
    for lease in state.leases.values():
        if (job := state.jobs.get(lease.job)) is not None:
            use.take(job, (lease.device,))
            newest.update({holder: max(lease.id, newest.get(holder, 0)) for holder in holders(job)})
    for job in state.jobs.values():
        if job.state is JobState.ACTIVE and _goes_on(state, job):
            use.running.update(holders(job))
    for holder, lease_id in newest.items():
        cap = cap_of(state, holder)
        if cap is None or lease_id < cap.capped_lease:
            continue
        devices, running = len(use.devices[holder]), use.running[holder]
        if cap.max_devices is not None and devices > cap.max_devices:
            yield f"{_name(holder)} has {devices} devices, its cap is {cap.max_devices}"
        if cap.max_running is not None and running > cap.max_running:
            yield f"{_name(holder)} runs {running} jobs, its cap is {cap.max_running}"
