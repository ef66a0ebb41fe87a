"""The shapes of what explains and foresees: ranges, reasons, places in the queue, changes, history.

Times are UTC, RFC 3339, as text; unknown is null.
"""

from typing import Any

from typing_extensions import TypedDict  # pydantic wants it before Python 3.12


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
    of a command in seconds. foreseen: the first range for its end that it was told,
    estimates: that and later ones, with their parts."""

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
    estimates: list[EstimateView]
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
    """A job that would start or end at another time. preempted: it would be stopped more often than now. runs: it does
    now. unknown: why its ends are null though it may end; null where they are known."""

    job: int
    name: str
    team: str
    start_before: str | None
    start_after: str | None
    end_before: str | None
    end_after: str | None
    preempted: bool
    runs: bool
    unknown: str | None


class TeamChangeView(TypedDict):
    """Mean completion times of the team's present jobs, in seconds; null where no end is known. left_out: further
    jobs, whose ends are unknown."""

    team: str
    jobs: int
    left_out: int
    jct_before_s: float | None
    jct_after_s: float | None


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
