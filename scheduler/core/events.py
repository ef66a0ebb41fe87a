"""What can happen to the core. Requests carry an id; their answer is a Reply effect, sent after the commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policies.model.decision import Decisions
from scheduler.core.entities import Estimate
from scheduler.core.records import Record
from scheduler.protocol.messages import Health, Hello, Report
from scheduler.protocol.spec import JobSpec
from scheduler.protocol.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A validated job file. key: the client's idempotency key or None.

    sealed: the job's secrets, encrypted; empty for none. past: results of those jobs it waits for that have left the
    core's memory.
    """

    request: int
    spec: JobSpec
    spec_key: str
    user: str
    key: str | None = None
    sealed: str = ""
    past: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    request: int
    job: int
    actor: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    request: int
    job: int
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    request: int
    job: int
    actor: str


class Verb(StrEnum):
    """What can be ordered of a job that has begun; `top` of one that waits."""

    REQUEUE = "requeue"
    SIGNAL = "signal"
    CHECKPOINT = "checkpoint"
    PREEMPT = "preempt"
    TOP = "top"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """signal: its name, for SIGNAL."""

    request: int
    job: int
    actor: str
    verb: Verb
    signal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values by name, see `scheduler.core.edits`. expected: the version the asker has seen, or None."""

    request: int
    job: int
    actor: str
    changes: Mapping[str, Any]
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A record becomes what is given. expected: as in Change."""

    request: int
    actor: str
    record: Record
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase:
    request: int
    actor: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that happened outside the core and belongs into the story."""

    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The database has no longer these jobs, which had ended long ago."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHello:
    """An authenticated agent began a session."""

    hello: Hello
    public_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReports:
    node: str
    session: str
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeard:
    """Any sign of life of a node's present session. health: what its checks say; telemetry: what it measures. Of both
    the highest beat counts."""

    node: str
    session: str
    beat: int = 0
    health: Health | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A policy's answer to the snapshot of `decisions.version`. nonce: fresh and random, for attempts it starts. late:
    why it is a quick answer and not the good one. error: why there is none."""

    decisions: Decisions
    nonce: str = ""
    late: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """What was foreseen of some jobs."""

    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; timers that are due fire."""


Request = Submit | Cancel | Hold | Release | Order | Change | Write | Erase
CoreEvent = Request | Remark | Forgotten | NodeHello | NodeReports | NodeHeard | Planned | Estimated | Tick
Answer = dict[str, Any]
