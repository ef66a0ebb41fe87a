"""The shapes of what the API answers. Times are UTC, RFC 3339, as text; unknown is null."""

from typing import Any

from typing_extensions import TypedDict  # pydantic wants it before Python 3.12


class Reason(TypedDict):
    code: str
    text: str
    since: str | None


class Gpus(TypedDict):
    have: int
    min: int
    max: int


class Plan(TypedDict):
    """bounds: layers [first, stop) of each stage. micro_batches is a count, micro_batch_size a size in samples."""

    stages: int
    micro_batches: int
    micro_batch_size: int
    replicas: int
    schedule: str
    bounds: list[list[int]]


class Eta(TypedDict):
    """start: of a waiting job; finish: as a range. All from the newest forecast."""

    start: str | None
    finish_earliest: str | None
    finish_latest: str | None


class RangeView(TypedDict):
    """Nine in ten shall lie from earliest to latest."""

    earliest: str
    likely: str
    latest: str


class Parts(TypedDict):
    """Seconds of a job's whole life; they sum to total_s."""

    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    total_s: float


class Coverage(TypedDict):
    """How often the first range that a job got held its end. share: null where no job has completed yet."""

    share: float | None
    inside: int
    before: int
    after: int
    unknown: int


class EstimateView(TypedDict):
    """moment: submit or start. inside: whether the truth lay in the range, null while it is not known."""

    moment: str
    made: str
    end: RangeView
    parts: Parts
    preemptions: float
    inside: bool | None


class EtaView(TypedDict):
    """now: the daemon's clock. start, end: null where unknown, and start where the job has started. unknown: why there
    is no end.

    estimates: what was foreseen earlier; ended: the truth. so_far: where the job's time went up to now.
    """

    now: str
    job: int
    state: str
    confidence: float
    made: str | None
    futures: int
    start: RangeView | None
    end: RangeView | None
    unknown: str | None
    parts: Parts | None
    preemptions: float | None
    so_far: Parts
    ended: str | None
    estimates: list[EstimateView]
    coverage: Coverage


class WhyView(TypedDict):
    """code: of docs/cli.md. unblock: what would let the job go on. numbers: those of the sentences."""

    job: int
    state: str
    code: str
    text: str
    unblock: str
    since: str | None
    waited_s: float | None
    numbers: dict[str, Any]


class RunView(TypedDict):
    """An attempt's speed. per_node: devices on each node. kind: null where its devices are gone or of several kinds."""

    kind: str | None
    per_node: list[int]
    plan: str
    steps: float
    step_time_s: float
    start_s: float


class HistoryRow(TypedDict):
    """A job that has ended. The parts sum to jct_s. model: of what code it is; equal for equal jobs. steps: its work,
    of a command in seconds. foreseen: the first range for its end that it was told."""

    job: int
    name: str
    team: str
    user: str
    queue: str
    priority: int
    model: str
    result: str
    exit_code: int | None
    submitted: str
    started: str | None
    ended: str
    jct_s: float
    gpus_min: int
    gpus_max: int
    gpus_preferred: int | None
    steps: float | None
    attempts: int
    preemptions: int
    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    gpu_s: float
    lost_gpu_s: float
    foreseen: RangeView | None
    runs: list[RunView]


class HistoryPage(TypedDict):
    """Newest first. next: what to ask for with `before` to go on, null at the end."""

    jobs: list[HistoryRow]
    next: int | None


class TermView(TypedDict):
    name: str
    value: float


class RankView(TypedDict):
    """Terms that are added up."""

    terms: list[TermView]
    sum: float


class PrioView(TypedDict):
    """Where a job stands in the queue and why: of two jobs the one with the larger first sum comes first; the next
    sums decide between equals, then the time of submission. position: among those that wait, from 1; null where the
    job does not wait."""

    job: int
    state: str
    policy: str
    ranks: list[RankView]
    position: int | None
    waiting: int


class MovedView(TypedDict):
    """A job that would start or end at another time. preempted: it would be stopped more often than now."""

    job: int
    name: str
    team: str
    start_before: str | None
    start_after: str | None
    end_before: str | None
    end_after: str | None
    preempted: bool


class TeamChangeView(TypedDict):
    """Mean completion times of the team's present jobs, in seconds."""

    team: str
    jobs: int
    jct_before_s: float
    jct_after_s: float


class WhatIf(TypedDict):
    """What an act would change, which it has not. futures: how many ways things may go were compared."""

    changes: bool
    moved: list[MovedView]
    preempted: list[int]
    teams: list[TeamChangeView]
    futures: int


class PlannedView(TypedDict):
    """What would become of a job that is submitted now. nodes: devices by node at its start."""

    start: RangeView | None
    end: RangeView | None
    unknown: str | None
    nodes: dict[str, int]
    plan: str
    parts: Parts
    preemptions: float
    confidence: float
    futures: int


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


class JobView(JobSummary):
    """All that is known of one job. now: the daemon's clock. estimates: what was foreseen of its completion."""

    now: str
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
    attempts: list[AttemptView]


class DrainView(TypedDict):
    """Why no new work goes there. by: who said so; health-check, where the node's own checks did."""

    reason: str
    by: str
    since: str | None


class NodeView(TypedDict):
    id: str
    state: str
    address: str
    devices: int
    free: int
    last_seen_s: float | None
    drain: DrainView | None


class DeviceView(TypedDict):
    """state: free, held, promised, quarantined, unhealthy, drained or away. job: who has it, null where that is not
    yours. drain: its own or its node's."""

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
