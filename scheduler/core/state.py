"""All that the core knows: entities that the database also holds, and what lives in memory only.

Entities are frozen; `put` replaces one and remembers it for the commit. Containers keep insertion order, and nothing
iterates over a set, so that the same events give the same effects.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policies.ir.plan import ParallelPlan
from policies.model.cluster import JobView, MeasuredMenu, Observed
from policies.model.decision import Start, Wait
from policies.model.profile import ModelProfile
from scheduler.core import lifecycle
from scheduler.core.effects import Effects
from scheduler.core.entities import (
    Attempt,
    AttemptState,
    Device,
    Entity,
    Estimate,
    Event,
    Generation,
    GenerationState,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
    Moment,
    Node,
    ProfileRecord,
)
from scheduler.core.lease_index import LeaseIndex
from scheduler.core.records import (
    DEFAULT_QUEUE,
    Account,
    Drain,
    PriorityClass,
    Queue,
    Reservation,
    Secret,
    Team,
    User,
)
from scheduler.core.restraint import Said
from scheduler.protocol.messages import Evaluation, Phase, Report
from scheduler.protocol.telemetry import Telemetry


@dataclass(slots=True)
class Progress:
    """What the pilot of a job's open attempt last said. Memory only; back within one beat after a restart."""

    phase: Phase = Phase.SPAWNING
    step: int | None = None
    loss: float | None = None
    step_time_s: float | None = None
    batch: int | None = None
    bubble_share: float | None = None
    saved: int | None = None
    first_evaluation: Evaluation | None = None
    last_evaluation: Evaluation | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """Profiles on every device kind they were measured on; sizes as the user's code gave them."""

    profiles: tuple[ModelProfile, ...]
    total_steps: int | None
    global_batch: int | None


@dataclass(frozen=True, slots=True)
class Sensed:
    """A node's newest sample, and the session and number of the beat that brought it. Memory only."""

    session: str
    beat: int
    at_us: int
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class Contested:
    """A device that somebody else slows down. ratio: how many times as long a step takes on it. Memory only."""

    node: str
    since_us: int
    ratio: float


class Role(StrEnum):
    """What a member is to its attempt. PRESENT: in the generation that runs. NEWCOMER: in the proposed one only. PAST:
    in neither; it has left, or shall."""

    PRESENT = "present"
    NEWCOMER = "newcomer"
    PAST = "past"


@dataclass(frozen=True, slots=True)
class Change:
    """A live change under way: what the job shall be, with the nonce of a new attempt in case that comes to it."""

    start: Start
    nonce: str
    since_us: int


@dataclass(frozen=True, slots=True)
class Took:
    """Device-seconds that a completed job held devices for, and whose job it was."""

    user: str
    team: str
    name: str
    gpu_s: float


def newest_shape(generations: Sequence[Generation]) -> Generation | None:
    """Of one attempt's, oldest first: the one that runs or ran last; the first of an attempt that starts."""
    ran = [generation for generation in generations if generation.ran]
    return ran[-1] if ran else next(iter(generations), None)


@dataclass(frozen=True, slots=True)
class Viewed:
    """How a pass saw a waiting job, and all that this was made of."""

    job: Job
    around: tuple[object, ...]
    view: JobView


@dataclass(slots=True)
class Counters:
    """The next number of everything that never returns."""

    job: int = 1
    lease: int = 1
    event: int = 1


@dataclass(slots=True)
class State:
    """jobs: all that are not DONE, and those that ended lately. leases: open ones only, by id.

    heard_us: when each node's session last gave a sign of life. said_hello: the session of each node that has said
    Hello to this daemon. step_at_us: when each running job's step last grew. foreign: members that run though
    this database does not know them, with their node. start_at_us: estimated starts of waiting jobs. resizing: what
    stopping jobs start as once they have stopped, with the nonce of that attempt; a restart of the daemon forgets it,
    and a pass decides anew. changing: live changes under way, and changed_us when the last one was done, by job;
    stops_to_change: the attempt of each job whose live change was dropped, so that its next goes through a checkpoint.
    measured: menus by spec key, used instead of the planner's. known: of profiles, by spec key, as far as it was asked.
    health_beat: the session and number of the beat whose health each node is judged by. undrained: nodes that are not
    well but beyond the drain budget, with the reason. labels: of each node, as its agent told. observed: of each job,
    the step times that its attempts have shown, by device kind and plan.
    took: the work of jobs that have completed. views: of waiting jobs, as the last pass saw them. unmet: why
    running jobs have no size that their owners allow, as the last pass told it. sensed: the newest
    sample of each node. contested: devices that are slowed down now. said: how often agents have caused events of each
    kind lately. planned_us: of the newest snapshot for a pass. again_us: when the policy wants to be asked again; 0
    where it does not. lease_index: of `leases`.
    """

    epoch: int
    jobs: dict[int, Job] = field(default_factory=dict)
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    generations: dict[tuple[int, int, int], Generation] = field(default_factory=dict)
    members: dict[tuple[int, int, int], Member] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    profiles: dict[tuple[str, str], ProfileRecord] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    teams: dict[str, Team] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: Queue(name=DEFAULT_QUEUE)})
    classes: dict[str, PriorityClass] = field(default_factory=dict)
    drains: dict[str, Drain] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    estimates: dict[tuple[int, Moment], Estimate] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)

    # memory only
    progress: dict[int, Progress] = field(default_factory=dict)
    reports: dict[tuple[int, int, int], Report] = field(default_factory=dict)
    heard_us: dict[str, int] = field(default_factory=dict)
    said_hello: dict[str, str] = field(default_factory=dict)
    started_us: int = 0
    step_at_us: dict[int, int] = field(default_factory=dict)
    start_at_us: dict[int, int] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    resizing: dict[int, tuple[Start, str]] = field(default_factory=dict)
    changing: dict[int, Change] = field(default_factory=dict)
    changed_us: dict[int, int] = field(default_factory=dict)
    views: dict[int, Viewed] = field(default_factory=dict)
    unmet: dict[int, Wait] = field(default_factory=dict)
    took: dict[int, Took] = field(default_factory=dict)
    stops_to_change: dict[int, int] = field(default_factory=dict)
    measured: dict[str, MeasuredMenu] = field(default_factory=dict)
    known: dict[str, Probed] = field(default_factory=dict)
    health_beat: dict[str, tuple[str, int]] = field(default_factory=dict)
    undrained: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    observed: dict[int, dict[tuple[str, ParallelPlan], Observed]] = field(default_factory=dict)
    sensed: dict[str, Sensed] = field(default_factory=dict)
    contested: dict[str, Contested] = field(default_factory=dict)
    said: dict[tuple[str, str], Said] = field(default_factory=dict)
    version: int = 0
    planning: bool = False
    plan_wanted: bool = False
    planned_us: int = 0
    again_us: int = 0
    lease_index: LeaseIndex = field(default_factory=LeaseIndex)

    def __post_init__(self) -> None:
        self.lease_index = LeaseIndex.over(self.leases.values())

    def put(self, entity: Entity, out: Effects) -> None:
        """Replace an entity and note it for the commit. Closed leases leave memory; forbidden transitions raise."""
        self.version += 1
        out.rows.append(entity)
        match entity:
            case Job():
                if (job := self.jobs.get(entity.id)) is not None:
                    lifecycle.check(lifecycle.JOB, job.state, entity.state, f"job {job.id}")
                self.jobs[entity.id] = entity
                if entity.state is JobState.DONE:
                    self.observed.pop(entity.id, None)
            case Attempt():
                attempt_key = (entity.job, entity.number)
                if (attempt := self.attempts.get(attempt_key)) is not None:
                    lifecycle.check(lifecycle.ATTEMPT, attempt.state, entity.state, f"attempt {attempt_key}")
                self.attempts[attempt_key] = entity
            case Generation():
                key = (entity.job, entity.attempt, entity.number)
                if (generation := self.generations.get(key)) is not None:
                    lifecycle.check(lifecycle.GENERATION, generation.state, entity.state, f"generation {key}")
                self.generations[key] = entity
            case Member():
                self.members[entity.job, entity.attempt, entity.number] = entity
            case Lease():
                self._put_lease(entity)
            case Node():
                self.nodes[entity.id] = entity
            case Device():
                self.devices[entity.id] = entity
            case ProfileRecord():
                self.profiles[entity.spec_key, entity.device_kind] = entity
                self.known.pop(entity.spec_key, None)
            case Estimate():
                self.estimates[entity.job, entity.moment] = entity
            case Account():
                self.accounts[entity.team, entity.user] = entity
            case _:
                self.book(entity.kind)[entity.name] = entity

    def hold(self, leases: Iterable[Lease]) -> None:
        """Take over the open leases of a database."""
        self.leases = {lease.id: lease for lease in leases}
        self.lease_index = LeaseIndex.over(self.leases.values())

    def _put_lease(self, new: Lease) -> None:
        old = self.leases.get(new.id)
        if old is not None:
            lifecycle.check(lifecycle.LEASE, old.state, new.state, f"lease {new.id}")
        if new.state is not LeaseState.CLOSED:
            self.leases[new.id] = new
            if old is None:
                self.lease_index.add(new)
        elif old is not None:
            del self.leases[new.id]
            self.lease_index.drop(old)

    def book(self, kind: str) -> dict[str, Any]:
        """All records of one kind by name."""
        books: dict[str, dict[str, Any]] = {
            "team": self.teams, "user": self.users, "queue": self.queues, "class": self.classes,
            "drain": self.drains, "reservation": self.reservations, "secret": self.secrets,
        }
        return books[kind]

    def note(
        self,
        out: Effects,
        now: int,
        kind: str,
        message: str,
        *,
        actor: str = "jctd",
        job: int | None = None,
        attempt: int | None = None,
        node: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append one line to the story."""
        event = Event(
            seq=self.counters.event, time_us=now, kind=kind, actor=actor, message=message,
            job=job, attempt=attempt, node=node, data=data or {},
        )
        self.counters.event += 1
        out.events.append(event)

    # --- questions ------------------------------------------------------------------------------------------

    def open_attempt(self, job: int) -> Attempt | None:
        """The job's attempt that has not ended; there is at most one."""
        found = self.jobs.get(job)
        if found is None or found.state is not JobState.ACTIVE:
            return None
        attempt = self.attempts.get((job, found.last_attempt))
        return attempt if attempt is not None and attempt.state is not AttemptState.ENDED else None

    def members_of(self, job: int, attempt: int) -> list[Member]:
        members: list[Member] = []
        while (member := self.members.get((job, attempt, len(members)))) is not None:
            members.append(member)
        return members

    def generations_of(self, job: int, attempt: int) -> list[Generation]:
        """Of an attempt, oldest first."""
        found: list[Generation] = []
        while (generation := self.generations.get((job, attempt, len(found) + 1))) is not None:
            found.append(generation)
        return found

    def generation_of(self, job: int, attempt: int) -> Generation | None:
        """The one that runs; of an attempt that starts its first, of one that has ended the last that ran."""
        return newest_shape(self.generations_of(job, attempt))

    def proposed(self, job: int, attempt: int) -> Generation | None:
        """The next generation of an attempt that runs, while its change is under way."""
        found = self.generations_of(job, attempt)[1:]
        return next((one for one in found if one.state is GenerationState.PROPOSED), None)

    def gathered(self, generation: Generation) -> bool:
        """Whether every device of the generation is held: its members may start."""
        waiting = {
            lease.member
            for lease in self.leases_of(generation.job, generation.attempt)
            if lease.state is LeaseState.PROMISED
        }
        return not waiting.intersection(generation.ranks)

    def aimed(self, job: int, attempt: int) -> Generation | None:
        """The generation that Targets name: the proposed one once it is gathered, else the one that runs."""
        proposed = self.proposed(job, attempt)
        return proposed if proposed is not None and self.gathered(proposed) else self.generation_of(job, attempt)

    def role(self, member: Member) -> Role:
        active = self.generation_of(member.job, member.attempt)
        if active is not None and member.number in active.ranks:
            return Role.PRESENT
        proposed = self.proposed(member.job, member.attempt)
        return Role.NEWCOMER if proposed is not None and member.number in proposed.ranks else Role.PAST

    def awaits_device(self, member: Member) -> bool:
        """A newcomer whose generation still lacks a device: it shall not start yet."""
        proposed = self.proposed(member.job, member.attempt)
        return proposed is not None and self.role(member) is Role.NEWCOMER and not self.gathered(proposed)

    def present_members(self, job: int, attempt: int) -> list[Member]:
        """Of the generation that runs, in the order of their ranks."""
        active = self.generation_of(job, attempt)
        return [self.members[job, attempt, number] for number in active.ranks] if active is not None else []

    def leases_of(self, job: int, attempt: int) -> list[Lease]:
        """Open ones, oldest first."""
        return [self.leases[id] for id in self.lease_index.of.get((job, attempt), ())]

    def leases_on(self, device: str) -> list[Lease]:
        """Open ones, oldest first."""
        return [self.leases[id] for id in self.lease_index.on.get(device, ())]

    def is_held(self, device: str) -> bool:
        return any(lease.state is LeaseState.HELD for lease in self.leases_on(device))

    def probed(self, job: Job) -> "Probed":
        """What is known of the job's model, from its own probe or from that of an equal job before it."""
        known = self.known.get(job.spec_key)
        if known is None:
            known = self.known[job.spec_key] = self._probed(job)
        return known

    def _probed(self, job: Job) -> "Probed":
        records = [record for (key, _), record in self.profiles.items() if key == job.spec_key]
        return Probed(
            profiles=tuple(profile for record in records for profile in record.profiles),
            total_steps=next((record.total_steps for record in records), None),
            global_batch=next((record.global_batch for record in records), None),
        )
