"""Every message of the system: Targets go down, Reports come up, always the latest whole value.

Repeated, lost and late messages are harmless: Targets are absolute and ordered by (epoch, version), Reports by
sequence number. Durations travel, moments do not: no two machines compare clocks.
"""

from enum import StrEnum

import msgspec

from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.spec import AttemptSpec
from scheduler.protocol.telemetry import Telemetry

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of everything that crosses a process boundary; the tag is the class name."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """The member shall run."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """The member shall end: at once where grace_s is 0; else the pilot saves (if `save`) and stops at a step boundary.

    grace_s is enforced by the shim on its boot clock. why: shown to the user.
    """

    grace_s: float
    why: str
    save: bool = True


class Phase(StrEnum):
    """Where a member is. EXITED: its process ended; GONE: so did all its descendants, the device is free. STUCK:
    SIGKILL did not end it within some seconds, so its device cannot be given to anybody.
    """

    SPAWNING = "spawning"
    IMPORTING = "importing"
    BUILDING = "building"
    JOINING = "joining"
    LOADING = "loading"
    PROBING = "probing"
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    STUCK = "stuck"
    EXITED = "exited"
    GONE = "gone"


class Cause(StrEnum):
    """Why a member ended. The daemon blames the attempt's end on the highest of them (LIFECYCLE 35)."""

    FINISHED = "finished"
    STOPPED = "stopped"
    PROBE_DONE = "probe_done"
    USER_EXCEPTION = "user_exception"
    BAD_SPEC = "bad_spec"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    STALLED = "stalled"
    PEER_LOST = "peer_lost"
    PLAN_MISMATCH = "plan_mismatch"
    CHECKPOINT_BROKEN = "checkpoint_broken"
    FENCED = "fenced"
    NOT_SUPPORTED = "not_supported"
    START_FAILED = "start_failed"
    SHIM_LOST = "shim_lost"
    KILLED = "killed"


class Target(Message, frozen=True, kw_only=True):
    """What one member shall be. (job, attempt, member) never returns.

    ranks: the member of each rank in this generation. plan is None for a probe. store: "host:port" of the
    generation's TCPStore, None until its node has reported it (Report.store_generation tells which generation's it is).
    save_no: raised to ask for a checkpoint now. signal_no: raised to have `signal` sent to the member's process.
    """

    job: int
    attempt: int
    member: int
    device: str
    want: Run | Stop
    spec: AttemptSpec
    generation: int = 1
    plan: ParallelPlan | None = None
    ranks: tuple[int, ...] = (0,)
    pilot: int = 0
    store: str | None = None
    save_no: int = 0
    signal_no: int = 0
    signal: str = ""

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.job, self.attempt, self.member)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Validation loss before this many steps had been taken."""

    step: int
    loss: float


class Report(Message, frozen=True, kw_only=True):
    """What one member is. seq grows with every change; only the highest counts. Unknown is None, never 0.

    step: finished steps. saved: step of the newest published checkpoint. plan, revision: what runs now, from the pilot.
    store, store_generation: the newest TCPStore that the member's shim started, and the generation it is for. live: it
    can take over a next generation without stopping. dropped: the highest generation that its pilot has dropped.
    pid: of its process, on its node. batch: samples of the step that took step_time_s. bubble_share: part of a step in
    which its ranks compute nothing, by their timers, as last measured.
    """

    job: int
    attempt: int
    member: int
    seq: int
    phase: Phase
    generation: int = 1
    live: bool = False
    dropped: int = 0
    pid: int | None = None
    revision: int = 0
    plan: ParallelPlan | None = None
    step: int | None = None
    saved: int | None = None
    store: str | None = None
    store_generation: int = 1
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None
    message: str = ""
    loss: float | None = None
    step_time_s: float | None = None
    batch: int | None = None
    bubble_share: float | None = None
    first_evaluation: Evaluation | None = None
    last_evaluation: Evaluation | None = None
    resumed_step: int | None = None
    total_steps: int | None = None
    global_batch: int | None = None
    fingerprint: str | None = None
    profiles: tuple[ModelProfile, ...] = ()

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.job, self.attempt, self.member)


# --- daemon and agent, over ZeroMQ ---------------------------------------------------------------------------


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A device an agent offers. id: a UUID, unique in the cluster. healthy is False with a reason, never silently."""

    id: str
    kind: str
    index: int
    name: str = ""
    memory_bytes: int | None = None
    healthy: bool = True
    reason: str = ""


class Hello(Message, frozen=True, kw_only=True):
    """An agent's first word in a session, with all it knows. session: random, one an agent start. labels: of the node,
    such as the switch it hangs on."""

    node: str
    machine: str
    boot: str
    session: str
    address: str
    devices: tuple[DeviceInfo, ...]
    reports: tuple[Report, ...] = ()
    stores: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    protocol: int = PROTOCOL_VERSION


class Welcome(Message, frozen=True, kw_only=True):
    epoch: int
    session: str


class Refused(Message, frozen=True, kw_only=True):
    """The daemon will not talk to this agent; what to do about it is in the text."""

    session: str
    why: str


class Targets(Message, frozen=True, kw_only=True):
    """All members this node shall have. Absence never kills: only `Stop` does."""

    epoch: int
    session: str
    version: int
    targets: tuple[Target, ...]


class Reports(Message, frozen=True, kw_only=True):
    """All members this node has. applied: the version of Targets it has acted on."""

    session: str
    seq: int
    applied: int
    reports: tuple[Report, ...]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's checks say of it now. node: why it should get no new work, empty where it is well. devices: of
    those that were looked at, why each is unusable, empty where it is well."""

    node: str = ""
    devices: dict[str, str] = {}


class Beat(Message, frozen=True, kw_only=True):
    """health: None until the first check has been made. telemetry: the newest sample, of bounded size."""

    session: str
    seq: int
    applied: int
    telemetry: Telemetry | None = None
    health: Health | None = None


class BeatAck(Message, frozen=True, kw_only=True):
    """epoch tells a restarted daemon from the old one: an agent that sees a new one says Hello again."""

    epoch: int
    session: str
    version: int
    known: bool = True


class Read(Message, frozen=True, kw_only=True):
    """Asks for a member's log from an offset in bytes; negative counts from the end. since_s: instead of an offset, for
    what was written in so many last seconds."""

    request: int
    job: int
    attempt: int
    member: int
    offset: int
    limit: int = 65536
    since_s: float | None = None


class Chunk(Message, frozen=True, kw_only=True):
    """offset: of `data` in the whole log. size: bytes written so far. missing: why there is nothing to read."""

    request: int
    offset: int
    data: bytes
    size: int
    missing: str = ""


# --- agent and shim, over a Unix socket ------------------------------------------------------------------------


class Spawn(Message, frozen=True, kw_only=True):
    """Start this member; the log's file descriptor travels beside the message. secrets: for its environment alone."""

    target: Target
    secrets: dict[str, str] = {}


class Slowdowns(Message, frozen=True, kw_only=True):
    """The newest of an attempt's devices on this node, those of them that are known; the shim passes it on to every
    training member. Told about once a second."""

    slowdowns: tuple[Slowdown, ...] = ()


class ShimHello(Message, frozen=True, kw_only=True):
    """The shim's first word on every connection, so that an agent knows whom it has re-adopted. members: that the shim
    has been told to start, whatever has become of them."""

    job: int
    attempt: int
    nonce: str
    pid: int
    protocol: int = PROTOCOL_VERSION
    members: tuple[int, ...] = ()


class NeedSecrets(Message, frozen=True, kw_only=True):
    """An agent that is about to start members of this attempt asks for the values of the job's `env_from`."""

    session: str
    job: int
    attempt: int


class Secrets(Message, frozen=True, kw_only=True):
    """Only over CURVE, only to a node that has a member of the attempt. missing: why there are none."""

    job: int
    attempt: int
    values: dict[str, str]
    missing: str = ""


FromAgent = Hello | Reports | Beat | Chunk | NeedSecrets
ToAgent = Welcome | Refused | Targets | BeatAck | Read | Secrets
ToShim = Spawn | Target | Slowdowns
ToMember = Target | Slowdowns
FromShim = ShimHello | Report
