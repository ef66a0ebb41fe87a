"""What the core asks of its driver. Everything but Plan happens only after the batch's one commit."""

from dataclasses import dataclass, field

from policies.model.cluster import ClusterSnapshot
from scheduler.core.entities import Entity, Event
from scheduler.core.errors import JctError
from scheduler.core.records import Record


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request: the job's id as it stands, or the error."""

    request: int
    job: int | None = None
    error: JctError | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Ask the policy; answer with a Planned event."""

    snapshot: ClusterSnapshot


@dataclass(slots=True)
class Effects:
    """Of one step. rows: entities to write, newest value last wins; deleted device ids, and kinds and names of
    deleted records; events to append."""

    rows: list[Entity] = field(default_factory=list)
    gone_devices: list[str] = field(default_factory=list)
    gone_records: list[tuple[str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    refusals: list[tuple[str, str, str]] = field(default_factory=list)
    plan: Plan | None = None
    idempotency: list[tuple[str, str, int]] = field(default_factory=list)

    def extend(self, other: "Effects") -> None:
        erased = other.gone_records
        if erased:
            self.rows = [row for row in self.rows if not (isinstance(row, Record) and (row.kind, row.name) in erased)]
        self.rows += other.rows
        self.gone_devices += other.gone_devices
        self.gone_records += other.gone_records
        self.events += other.events
        self.replies += other.replies
        self.refusals += other.refusals
        self.idempotency += other.idempotency
        self.plan = other.plan or self.plan
