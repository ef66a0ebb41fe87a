"""What the database holds, as frozen values. A change is a new value with the same key.

Times are microseconds of the daemon's clock since the Unix epoch. Unknown is None.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile
from scheduler.core.records import Account, Record
from scheduler.protocol.messages import Cause
from scheduler.protocol.spec import JobSpec


class JobState(StrEnum):
    QUEUED = "QUEUED"
    ACTIVE = "ACTIVE"
    DONE = "DONE"


class Wanted(StrEnum):
    RUN = "run"
    HOLD = "hold"
    CANCEL = "cancel"


class Result(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_LOST = "NODE_LOST"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DEADLINE = "DEADLINE"


class AttemptKind(StrEnum):
    TRAIN = "train"
    PROBE = "probe"
    COMMAND = "command"


class AttemptState(StrEnum):
    GATHERING = "GATHERING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


class EndCause(StrEnum):
    """Why an attempt ended, the daemon's word on it."""

    FINISHED = "finished"
    PROBE_DONE = "probe_done"
    PREEMPTED = "preempted"
    RESIZED = "resized"
    CANCELLED = "cancelled"
    HELD = "held"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    RANK_LOST = "rank_lost"
    STALLED = "stalled"
    NODE_LOST = "node_lost"
    START_FAILED = "start_failed"
    PLAN_MISMATCH = "plan_mismatch"
    BAD_SPEC = "bad_spec"
    TIME_LIMIT = "time_limit"
    DEADLINE = "deadline"
    REQUEUED = "requeued"


class GenerationState(StrEnum):
    PROPOSED = "PROPOSED"
    ACTIVE = "ACTIVE"
    CLOSED = "CLOSED"
    DROPPED = "DROPPED"


class LeaseState(StrEnum):
    PROMISED = "PROMISED"
    HELD = "HELD"
    QUARANTINED = "QUARANTINED"
    CLOSED = "CLOSED"


class NodeState(StrEnum):
    UP = "UP"
    SILENT = "SILENT"
    LOST = "LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One submission, one id for life.

    last_attempt: number of the newest attempt, 0 before the first. microbatch_size: pinned by the first training
    plan (numerics: exact). avoid: nodes that failed to start it, for a while. reason: code and sentence of why it
    waits or how it ended. saved_step: newest checkpoint. array, task: the array's first job, and the index in it.
    waits_for: jobs that must end first, each with `ok` where it must complete. ran_us: time with devices in attempts
    that have ended. first_us: its place in the order of submission, where somebody moved it; else submitted_us.
    """

    id: int
    spec: JobSpec
    user: str
    priority: int
    submitted_us: int
    state: JobState = JobState.QUEUED
    wanted: Wanted = Wanted.RUN
    result: Result | None = None
    reason_code: str = ""
    reason: str = ""
    reason_since_us: int | None = None
    ended_by: str | None = None
    ended_us: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    spec_key: str = ""
    fingerprint: str | None = None
    last_attempt: int = 0
    failures: int = 0
    faults: int = 0
    preemptions: int = 0
    retry_at_us: int = 0
    avoid: tuple[str, ...] = ()
    avoid_until_us: int = 0
    microbatch_size: int | None = None
    total_steps: int | None = None
    global_batch: int | None = None
    saved_step: int | None = None
    first_validation_loss: float | None = None
    last_validation_loss: float | None = None
    wanted_by: str | None = None
    array: int | None = None
    task: int | None = None
    waits_for: tuple[tuple[int, str], ...] = ()
    ran_us: int = 0
    first_us: int | None = None

    @property
    def place_us(self) -> int:
        """Where it stands among those of its priority."""
        return self.submitted_us if self.first_us is None else self.first_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of a gang. Its time stamps cut the JCT ledger; all are commits of the daemon.

    saved_step: of the newest checkpoint when it began. resumed_step: where the pilot says it did begin. save_no and
    signal_no: raised by each request to save now, or to send `signal` to all members.
    """

    job: int
    number: int
    kind: AttemptKind
    created_us: int
    state: AttemptState = AttemptState.GATHERING
    cause: EndCause | None = None
    message: str = ""
    nonce: str = ""
    starting_us: int | None = None
    running_us: int | None = None
    stopping_us: int | None = None
    ended_us: int | None = None
    stop_grace_s: float | None = None
    stop_save: bool = False
    stop_why: str = ""
    stop_by: str | None = None
    saved_step: int | None = None
    resumed_step: int | None = None
    last_step: int | None = None
    store: str | None = None
    save_no: int = 0
    signal_no: int = 0
    signal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Members, ranks and plan of an attempt between two changes of shape. ranks: the member of each rank."""

    job: int
    attempt: int
    number: int
    plan: ParallelPlan | None
    ranks: tuple[int, ...]
    state: GenerationState = GenerationState.PROPOSED

    @property
    def ran(self) -> bool:
        """It runs or did; a proposed one may still, a dropped one never will."""
        return self.state in (GenerationState.ACTIVE, GenerationState.CLOSED)

    @property
    def pilot(self) -> int:
        """The member that speaks for the job."""
        return self.ranks[self.plan.pilot_rank if self.plan is not None else 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process on one device. gone_us: when process and descendants were reported gone."""

    job: int
    attempt: int
    number: int
    node: str
    device: str
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None
    message: str = ""
    exited_us: int | None = None
    gone_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A device's tie to one member. At most one HELD and one PROMISED a device; the database enforces it."""

    id: int
    device: str
    job: int
    attempt: int
    member: int
    state: LeaseState
    created_us: int
    closed_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent. public_key: its CURVE key (Z85), the identity on the wire."""

    id: str
    public_key: str
    machine: str
    address: str
    boot: str
    session: str
    state: NodeState = NodeState.UP
    first_seen_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    id: str
    node: str
    kind: str
    index: int
    name: str = ""
    memory_bytes: int | None = None
    healthy: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a story: when, who, what, why. seq never returns; data holds numbers worth keeping."""

    seq: int
    time_us: int
    kind: str
    actor: str
    message: str
    job: int | None = None
    attempt: int | None = None
    node: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRecord:
    """Measured profiles of one model on one device kind, one a micro-batch size."""

    spec_key: str
    device_kind: str
    fingerprint: str
    profiles: tuple[ModelProfile, ...]
    total_steps: int | None
    global_batch: int | None


class Moment(StrEnum):
    """When an estimate was made: as soon as there was one after submission, and after the first start."""

    SUBMIT = "submit"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What was foreseen of a job's completion, kept beside the truth: 90% of ends shall be from low_us to high_us.

    spread: standard deviation of the logarithm of the time from made_us to the end. The parts (seconds) are of the
    whole life and sum to the time from submission to the end that was foreseen.
    """

    job: int
    moment: Moment
    made_us: int
    low_us: int
    mid_us: int
    high_us: int
    spread: float
    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    preemptions: float


Entity = Job | Attempt | Generation | Member | Lease | Node | Device | ProfileRecord | Account | Estimate | Record
