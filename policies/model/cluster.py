"""The cluster as a policy sees it: an immutable snapshot of devices and of jobs that are not done."""

from dataclasses import dataclass
from enum import StrEnum

from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device that may be offered. holder: the job that holds it now (running or stopping), or None.

    promised: the job it is promised to once its holder is gone. switch: label of the network switch that its node hangs
    on; empty where unknown. slowdown: predicted, how many times as long a step takes on it. offered: whether it may
    get a new job; those of a drained node may not. reserved_for: the team or user for whom alone it is kept, or empty.
    """

    id: str
    node: str
    kind: str
    memory_bytes: int | None
    holder: int | None = None
    promised: int | None = None
    switch: str = ""
    slowdown: float = 1.0
    offered: bool = True
    reserved_for: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measured way to run a job. per_node: devices on each used node in node order, in any rotation or its
    reverse; empty where any spread will do. restart_s: what a change to it costs."""

    kind: str
    per_node: tuple[int, ...]
    devices: int
    plan: ParallelPlan
    step_time_s: float
    restart_s: float


@dataclass(frozen=True, eq=False)
class MeasuredMenu:
    """A menu made of measurements instead of a planner's predictions. Compared by identity, for quick caches."""

    rows: tuple[MeasuredRow, ...]


@dataclass(frozen=True, slots=True)
class MenuRequest:
    """What bounds a job's menu. Hashable: equal requests have equal menus.

    measured: the menu itself, where given.
    profiles: measured at one or more micro-batch sizes; empty before the probe.
    microbatch_size: pinned size, or None while it is free; stages, replicas, microbatches: pinned counts or None.
    """

    profiles: tuple[ModelProfile, ...]
    global_batch: int
    min_devices: int
    max_devices: int
    allowed_devices: tuple[int, ...] = ()
    microbatch_size: int | None = None
    microbatches: int | None = None
    stages: tuple[int, ...] = ()
    replicas: int = 1
    schedule: str | None = None
    measured: MeasuredMenu | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that is pending, running or stopping.

    devices: what it holds now. preemptible: may be stopped for a more important job *now* (it has a checkpoint
    newer than its resume point, or its minimum runtime has passed). avoid: nodes that failed to start it.
    retry_at_us: it is not started before this moment. work_known: whether remaining_steps is more than a guess.
    attained_gpu_s: device-seconds held so far. changed_us: when it got what it holds, or lost what it had.
    promised: devices kept for it until their holders are gone. preferred: the device count its user would choose.
    guaranteed: devices that no preemption may take from it once it has them (an SLA); 0 for best effort. preemptions,
    max_preemptions: how often it has been preempted, and may be at most. observed: step times that its attempts have
    shown. live: it can change its shape while it trains.
    past_gpu_s: of a job of unknown work, what finished jobs like it took, ascending; empty where there are too few.
    out_of_range: it runs on a number of devices that its owner does not allow any more, and could change now.
    lost_s: seconds of training that it would lose if it were stopped now, since it writes no checkpoints.
    """

    id: int
    team: str
    priority: int
    submitted_us: int
    state: str
    menu: MenuRequest
    remaining_steps: int
    devices: tuple[str, ...] = ()
    plan: ParallelPlan | None = None
    preemptible: bool = False
    avoid: tuple[str, ...] = ()
    retry_at_us: int = 0
    device_kinds: tuple[str, ...] = ()
    blocked: str = ""
    work_known: bool = True
    attained_gpu_s: float = 0.0
    changed_us: int = 0
    changes: int = 0
    promised: tuple[str, ...] = ()
    preferred: int | None = None
    user: str = ""
    queue: str = "default"
    guaranteed: int = 0
    preemptions: int = 0
    max_preemptions: int | None = None
    observed: tuple["Observed", ...] = ()
    live: bool = False
    past_gpu_s: tuple[float, ...] = ()
    out_of_range: bool = False
    lost_s: float = 0.0

    @property
    def pending(self) -> bool:
        return self.state == JobState.PENDING

    @property
    def shield(self) -> int:
        """Devices that may not be taken from it once it has them: those guaranteed, and all of its least where it has
        been preempted as often as it may be."""
        spent = self.max_preemptions is not None and self.preemptions >= self.max_preemptions
        return max(self.guaranteed, self.menu.min_devices if spent else 0)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a running attempt has measured: the step time of a plan on devices of a kind."""

    kind: str
    devices: int
    plan: ParallelPlan | None
    step_time_s: float


class JobState(StrEnum):
    """How a job stands to its devices, for a policy."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class TeamView:
    """weight: of its jobs beside those of others. max_devices: all its jobs together hold at most so many; None for no
    limit. share_used: its decayed use as a part of what its weight entitles it to; 0 where unknown."""

    name: str
    weight: float = 1.0
    max_devices: int | None = None
    share_used: float = 0.0


@dataclass(frozen=True, slots=True)
class UserView:
    """max_devices: all jobs of the user together hold at most so many; None for no limit."""

    name: str
    max_devices: int | None = None


@dataclass(frozen=True, slots=True)
class QueueView:
    """policy: the name of the policy that orders this queue's jobs; empty for the cluster's own. max_devices: all its
    jobs together hold at most so many; None for no limit."""

    name: str
    policy: str = ""
    max_devices: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything a pass looks at. version: of the state it was taken from; now_us: microseconds, daemon clock.

    teams, users, queues: those with settings of their own; others have the defaults.
    """

    version: int
    now_us: int
    devices: tuple[DeviceView, ...]
    jobs: tuple[JobView, ...]
    teams: tuple[TeamView, ...] = ()
    users: tuple[UserView, ...] = ()
    queues: tuple[QueueView, ...] = ()
