"""The cluster as a policy sees it: an immutable snapshot of devices and of jobs that are not done."""

from dataclasses import dataclass
from enum import StrEnum

from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device that may be offered. holder: the job that holds it now (running or stopping), or None.

    promised: the job it is promised to once its holder is gone.
    """

    id: str
    node: str
    kind: str
    memory_bytes: int | None
    holder: int | None = None
    promised: int | None = None


@dataclass(frozen=True, slots=True)
class MenuRequest:
    """What bounds a job's menu. Hashable: equal requests have equal menus.

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


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that is pending, running or stopping.

    devices: what it holds now. preemptible: may be stopped for a more important job *now* (it has a checkpoint
    newer than its resume point, or its minimum runtime has passed). avoid: nodes that failed to start it.
    retry_at_us: it is not started before this moment.
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

    @property
    def pending(self) -> bool:
        return self.state == JobState.PENDING


class JobState(StrEnum):
    """How a job stands to its devices, for a policy."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything a pass looks at. version: of the state it was taken from; now_us: microseconds, daemon clock."""

    version: int
    now_us: int
    devices: tuple[DeviceView, ...]
    jobs: tuple[JobView, ...]
