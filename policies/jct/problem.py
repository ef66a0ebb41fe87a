"""One scheduling question in its plainest form: nodes with free devices, jobs with menus; the answer is grants.

Allocators see only this. It is made from a cluster's snapshot, from a simulated cluster, or from a line of JSON, so
that the same decision serves all three. Names are opaque; steps are whatever unit the caller counts in.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from policies.jct.terms import Term
    from policies.jct.work import Work

Placement = Mapping[str, int]
"""Devices on each used node, in node order; empty for none."""

NOTHING: Placement = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a job.

    per_node: devices on each used node in node order, in any rotation or its reverse; empty where any spread of
    `devices` will do. restart_s: how long a job that changes to this option stands still.
    """

    kind: str
    devices: int
    step_time_s: float
    restart_s: float
    plan: Hashable
    per_node: tuple[int, ...] = ()


class Options(tuple[Option, ...]):
    """A menu that many jobs or passes share, compared by identity, so that what is made of it is found quickly."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """devices: offered in all. free: held by nobody and promised to nobody, or so once a stopping job is gone.

    switch: that the node hangs on; empty where unknown. slowdown: how many times as long a step takes on the worst of
    its devices; slowdowns: on each of them in the order in which gangs get them, empty where they are all alike.
    """

    id: str
    kind: str
    devices: int
    free: int
    switch: str = ""
    slowdown: float = 1.0
    slowdowns: tuple[float, ...] = ()

    def slowed(self, devices: int, taken: int = 0) -> float:
        """How many times as long a step takes on so many of them, once gangs have got so many others."""
        return max(self.slowdowns[taken : taken + devices], default=self.slowdown)

    def with_free(self, free: int) -> "NodeRoom":
        """The same once so many are free: the calmest are taken first."""
        if free == self.free:
            return self
        slowdowns = self.slowdowns[max(0, self.free - free) :]
        return NodeRoom(self.id, self.kind, self.devices, free, self.switch, self.slowdown, slowdowns)


@dataclass(frozen=True, slots=True)
class JobDemand:
    """A job that waits or runs.

    remaining_steps: None where unknown. attained_gpu_s: device-seconds held so far. since_change_s: since it got what
    it holds, or since it lost everything. frozen: not to be touched in this pass. asked: the device count its user
    asked for, for allocators that do not choose one; None for the least on its menu. avoid: nodes that it may not use.
    level: strict priority; see `levels`. expects: devices that it will want besides when it has been probed.
    holders: names under which caps count it. shield: while it runs it keeps at least so many devices; 0 where all may
    be taken from it. queue: where it waits.
    past_gpu_s: device-seconds that finished jobs like it took, ascending; for jobs of unknown work. slowdown: how many
    times as long its steps take where it runs, because of whoever else is there. stop_loses_s, change_loses_s: work
    that is lost besides, if it is stopped and if its shape is changed.
    """

    id: str
    age_s: float
    menu: tuple[Option, ...]
    remaining_steps: float | None
    attained_gpu_s: float = 0.0
    restarts: int = 0
    since_change_s: float = 0.0
    weight: float = 1.0
    min_devices: int = 1
    max_devices: int = 1 << 30
    placement: Placement = field(default_factory=lambda: NOTHING)
    plan: Hashable = None
    frozen: bool = False
    asked: int | None = None
    avoid: tuple[str, ...] = ()
    level: int = 0
    expects: int = 0
    holders: tuple[str, ...] = ()
    shield: int = 0
    queue: str = ""
    past_gpu_s: tuple[float, ...] = ()
    slowdown: float = 1.0
    stop_loses_s: float = 0.0
    change_loses_s: float = 0.0

    @property
    def waits(self) -> bool:
        return not self.placement and not self.frozen

    @property
    def fixed(self) -> bool:
        """An allocator that cannot shrink jobs leaves those with a shield as they are."""
        return self.frozen or (self.shield > 0 and bool(self.placement))

    @property
    def devices(self) -> int:
        return sum(self.placement.values())


@dataclass(frozen=True, slots=True)
class Problem:
    """now_s: seconds of the caller's clock. Jobs not named in an answer keep what they have.

    others_weight, others_devices: of jobs that are decided apart, the sum of their weights, and how many devices they
    hold or want at least. caps: devices that these jobs of each holder may have together. policies: of
    queues that have their own.
    """

    now_s: float
    nodes: tuple[NodeRoom, ...]
    jobs: tuple[JobDemand, ...]
    others_weight: float = 0.0
    others_devices: int = 0
    caps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    policies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job has from now on; an empty placement takes all away. calmer: it goes to calmer devices, maybe of the
    nodes where it is."""

    id: str
    placement: Placement
    plan: Hashable = None
    step_time_s: float | None = None
    calmer: bool = False


class Allocator(Protocol):
    """Deterministic and pure. effort bounds its search in steps of its own; any effort gives a valid answer."""

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]: ...

    def settles_in_s(self, problem: Problem) -> float:
        """Seconds until a running job that is left alone now, since it has just changed, may be changed again: then the
        answer may be another one though nothing has happened. Infinite where there is none."""
        ...

    def terms(self, work: "Work", among: "Sequence[Work]") -> "tuple[Term, ...]":
        """What a job's place in that order is made of, among all jobs of the cluster."""
        ...

    def claims(self, problem: Problem, waiting: "Sequence[Work]") -> "list[tuple[Work, Sequence[Option]]]":
        """In which order waiting jobs may take what lower levels have, and which options each may take, best first."""
        ...
