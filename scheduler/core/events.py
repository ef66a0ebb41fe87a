"""What can happen to the core. Requests carry an id; their answer is a Reply effect, sent after the commit."""

from dataclasses import dataclass
from typing import Any

from policies.model.decision import Decisions
from scheduler.protocol.messages import Hello, Report
from scheduler.protocol.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A validated job file. key: the client's idempotency key or None."""

    request: int
    spec: JobSpec
    spec_key: str
    user: str
    key: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPriority:
    request: int
    job: int
    priority: int
    actor: str


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
    """Any sign of life of a node's present session."""

    node: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A policy's answer to the snapshot of `decisions.version`. nonce: fresh and random, for attempts it starts. late:
    why it is a quick answer and not the good one. error: why there is none."""

    decisions: Decisions
    nonce: str = ""
    late: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; timers that are due fire."""


CoreEvent = Submit | Cancel | Hold | Release | SetPriority | NodeHello | NodeReports | NodeHeard | Planned | Tick
Request = Submit | Cancel | Hold | Release | SetPriority
Answer = dict[str, Any]
