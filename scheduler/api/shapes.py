"""The shapes of what the API answers. Times are UTC, RFC 3339, as text; unknown is null."""

from typing import Any

from typing_extensions import TypedDict  # pydantic wants it before Python 3.12

from scheduler.api.foresight_shapes import EstimateView


class Reason(TypedDict):
    code: str
    text: str
    since: str | None


class Gpus(TypedDict):
    have: int
    min: int
    max: int


class Plan(TypedDict):
    """bounds: layers [first, stop) of each stage. micro_batches is a count, micro_batch_size a size in samples.

    recompute, offload: activations are computed again, the optimizer's state lives in host memory, to save memory."""

    stages: int
    micro_batches: int
    micro_batch_size: int
    replicas: int
    schedule: str
    recompute: bool
    offload: bool
    bounds: list[list[int]]


class Eta(TypedDict):
    """start: of a waiting job; finish: as a range. All from the newest forecast."""

    start: str | None
    finish_earliest: str | None
    finish_latest: str | None


class LedgerView(TypedDict):
    """Seconds; the parts sum to total_s."""

    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    total_s: float


class Validation(TypedDict):
    first_loss: float | None
    last_loss: float | None


class JobSummary(TypedDict):
    """One row of the queue."""

    id: int
    name: str
    team: str
    queue: str
    user: str
    priority: int
    state: str
    reason: Reason | None
    result: str | None
    ended_by: str | None
    exit_code: int | None
    signal: int | None
    gpus: Gpus
    plan: Plan | None
    nodes: list[str]
    step: int | None
    total_steps: int | None
    loss: float | None
    eta: Eta | None
    submitted: str | None
    ended: str | None
    checkpoint_step: int | None
    preemptions: int
    failures: int
    faults: int
    attempt: int | None


class MemberView(TypedDict):
    member: int
    rank: int | None
    node: str
    device: str
    exit_code: int | None
    signal: int | None
    cause: str | None
    message: str


class AttemptView(TypedDict):
    attempt: int
    kind: str
    state: str
    cause: str | None
    message: str
    stages: int | None
    plan: Plan | None
    nodes: list[str]
    devices: list[str]
    created: str | None
    starting: str | None
    running: str | None
    stopping: str | None
    ended: str | None
    resumed_step: int | None
    last_step: int | None
    members: list[MemberView]


class AfterView(TypedDict):
    """how: ok or any."""

    job: int
    how: str


class UsedView(TypedDict):
    """GPU-seconds held, and those spent on steps that no checkpoint kept."""

    gpu_s: float
    lost_gpu_s: float


class NeighbourView(TypedDict):
    """Somebody slows a device of the job down. costs_percent: by how much longer a step takes on it."""

    node: str
    index: int
    device: str
    costs_percent: float
    since: str


class JobView(JobSummary):
    """All that is known of one job. now: the daemon's clock. estimates: what was foreseen of its completion.
    neighbours: on its devices, now. step_time_s, bubble_share: of a training that runs, as last measured; the latter is
    the part of a step in which its ranks compute nothing."""

    now: str
    step_time_s: float | None
    bubble_share: float | None
    labels: dict[str, str]
    note: str
    entrypoint: str
    command: list[str]
    script: str
    time_limit_s: float | None
    begin: str | None
    deadline: str | None
    after: list[AfterView]
    array: int | None
    task: int | None
    env_from: list[str]
    used: UsedView
    workdir: str
    env_keys: list[str]
    global_batch: int | None
    numerics: str
    preemptible: bool
    checkpoint_dir: str | None
    validation: Validation
    ledger: LedgerView
    estimates: list[EstimateView]
    neighbours: list[NeighbourView]
    attempts: list[AttemptView]


class DrainView(TypedDict):
    """Why no new work goes there. by: who said so; health-check, where the node's own checks did."""

    reason: str
    by: str
    since: str | None


class ProcessView(TypedDict):
    """whose: job (one of ours), other, or unknown. job and name: null and empty where it is not yours."""

    pid: int
    whose: str
    job: int | None
    name: str
    memory_bytes: int | None


class SlowdownView(TypedDict):
    """How many times as long a step takes because of others. low, high: hold it nine times in ten. confidence: 0 to 1.
    source: forest (from counters) or observed (in step times). contested: it is so high, for so long, that passes avoid
    the device."""

    ratio: float
    low: float
    high: float
    confidence: float
    source: str
    contested: bool


class DeviceMeasured(TypedDict):
    """The newest sample. age_s: since it was read; null where it never was. values: by name, whose end is the unit; of
    each null `missing` has the reason under the same name. parent: of a MIG device its GPU. processes: null where they
    cannot be listed, see missing. slowdown: null where nothing is known of it."""

    age_s: float | None
    bus: str
    parent: str
    values: dict[str, float | None]
    missing: dict[str, str]
    throttled: list[str] | None
    processes: list[ProcessView] | None
    slowdown: SlowdownView | None


class InterfaceView(TypedDict):
    """kind: loopback, virtual or physical."""

    name: str
    kind: str
    up: bool
    values: dict[str, float | None]
    missing: dict[str, str]


class NodeMeasured(TypedDict):
    """The newest sample of the machine itself. number: counts samples since the agent's start; late: readings that were
    not there in time; left_out: devices and interfaces for which the message had no room."""

    age_s: float
    number: int
    late: int
    left_out: int
    values: dict[str, float | None]
    missing: dict[str, str]
    interfaces: list[InterfaceView]


class NodeView(TypedDict):
    """measured: null before the first sample."""

    id: str
    state: str
    address: str
    devices: int
    free: int
    last_seen_s: float | None
    drain: DrainView | None
    measured: NodeMeasured | None


class DeviceView(TypedDict):
    """state: free, held, promised, quarantined, unhealthy, drained or away. job: who has it, null where that is not
    yours. drain: its own or its node's. measured: null before the first sample."""

    id: str
    node: str
    kind: str
    index: int
    name: str
    memory_bytes: int | None
    state: str
    reason: str
    job: int | None
    drain: DrainView | None
    measured: DeviceMeasured | None


class WebhookView(TypedDict):
    """secret: only in the answer that made it. behind: events that it has not dealt with. trouble: why the last
    delivery failed, null where it did not or none was tried."""

    id: int
    name: str
    url: str
    team: str | None
    events: list[str]
    by: str
    created: str | None
    secret: str | None
    behind: int
    failing_since: str | None
    trouble: str | None


class WebhookList(TypedDict):
    webhooks: list[WebhookView]


class EventView(TypedDict):
    seq: int
    time: str | None
    kind: str
    actor: str
    message: str
    job: int | None
    attempt: int | None
    node: str | None
    data: dict[str, Any]


class RecordView(TypedDict):
    """A team, user, queue, class, drain or reservation. version: for If-Match."""

    kind: str
    name: str
    version: str
    fields: dict[str, Any]


class RecordList(TypedDict):
    records: list[RecordView]


class TokenView(TypedDict):
    """secret: only in the answer that creates it."""

    id: int
    name: str
    user: str
    team: str
    role: str
    created: str
    expires: str | None
    revoked: str | None
    secret: str | None


class TokenList(TypedDict):
    tokens: list[TokenView]


class AuditView(TypedDict):
    id: int
    time: str
    actor: str
    action: str
    target: str
    allowed: bool
    old: Any
    new: Any
    request: str


class AuditPage(TypedDict):
    """Newest first. next: what to ask for with `before` to go on, null at the end."""

    entries: list[AuditView]
    next: int | None


class UsageRow(TypedDict):
    """GPU-seconds of attempts that have ended. lost_gpu_s: on steps that no checkpoint kept."""

    team: str
    user: str
    gpu_s: float
    lost_gpu_s: float
    recent_gpu_s: float


class UsageList(TypedDict):
    rows: list[UsageRow]


class JobPage(TypedDict):
    """now: the daemon's clock. next: the cursor of the page after this one, null at the end."""

    now: str
    jobs: list[JobSummary]
    next: str | None


class EventPage(TypedDict):
    """next: what to ask for with `after` to go on."""

    events: list[EventView]
    next: int


class NodeList(TypedDict):
    nodes: list[NodeView]


class DeviceList(TypedDict):
    devices: list[DeviceView]
