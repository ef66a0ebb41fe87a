"""The tables, one an entity of `scheduler.core.entities`: columns for what is queried, JSON for specs and plans.

Table models do not validate; the core's entities are the truth about types. Times are microseconds, UTC. Devices and
nodes are not referenced by key, since history outlives them. Constraints are named, so that migrations can change them.
"""

from typing import Any

import sqlalchemy
from sqlalchemy import JSON, BigInteger, Column, ForeignKeyConstraint, Index, Integer, MetaData, text
from sqlmodel import Field, SQLModel

BigId = BigInteger().with_variant(Integer, "sqlite")


class Table(SQLModel):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def table_of(row: type[Table]) -> sqlalchemy.Table:
    """What statements name: SQLModel adds it to the class, unseen by type checkers."""
    found: sqlalchemy.Table = row.__table__  # type: ignore[attr-defined]
    return found


def _json() -> Any:
    return Field(sa_column=Column(JSON, nullable=False))


def _json_or_null() -> Any:
    return Field(sa_column=Column(JSON(none_as_null=True), nullable=True))


def _us() -> Any:
    return Field(sa_type=BigInteger)


def _us_or_null() -> Any:
    return Field(default=None, sa_type=BigInteger, nullable=True)


def unique_where(name: str, column: str, condition: str) -> Index:
    """A partial unique index: at most one row a `column` for which `condition` holds."""
    return Index(name, column, unique=True, sqlite_where=text(condition), postgresql_where=text(condition))


class MetaRow(Table, table=True):
    """Single numbers: the epoch, and the next job, lease and event."""

    __tablename__ = "meta"
    name: str = Field(primary_key=True)
    value: int = Field(sa_type=BigInteger)


class JobRow(Table, table=True):
    __tablename__ = "jobs"
    id: int = Field(primary_key=True, sa_type=BigInteger)
    name: str
    team: str = Field(index=True)
    queue: str
    spec: dict[str, Any] = _json()
    user: str
    priority: int
    submitted_us: int = _us()
    state: str = Field(index=True)
    wanted: str
    result: str | None
    reason_code: str
    reason: str
    reason_since_us: int | None = _us_or_null()
    ended_by: str | None
    ended_us: int | None = Field(default=None, sa_type=BigInteger, nullable=True, index=True)
    exit_code: int | None
    signal: int | None
    spec_key: str
    fingerprint: str | None
    last_attempt: int
    failures: int
    faults: int
    preemptions: int
    retry_at_us: int = _us()
    avoid: list[str] = _json()
    avoid_until_us: int = _us()
    microbatch_size: int | None
    total_steps: int | None = _us_or_null()
    global_batch: int | None = _us_or_null()
    saved_step: int | None = _us_or_null()
    first_validation_loss: float | None
    last_validation_loss: float | None
    wanted_by: str | None
    array: int | None = _us_or_null()
    task: int | None
    waits_for: list[Any] = _json()
    ran_us: int = _us()
    first_us: int | None = _us_or_null()


class AttemptRow(Table, table=True):
    __tablename__ = "attempts"
    __table_args__ = (unique_where("uq_attempts_open", "job", "state <> 'ENDED'"),)
    job: int = Field(primary_key=True, sa_type=BigInteger, foreign_key="jobs.id")
    number: int = Field(primary_key=True)
    kind: str
    created_us: int = _us()
    state: str
    cause: str | None
    message: str
    nonce: str
    starting_us: int | None = _us_or_null()
    running_us: int | None = _us_or_null()
    stopping_us: int | None = _us_or_null()
    ended_us: int | None = _us_or_null()
    stop_grace_s: float | None
    stop_save: bool
    stop_why: str
    stop_by: str | None
    saved_step: int | None = _us_or_null()
    resumed_step: int | None = _us_or_null()
    last_step: int | None = _us_or_null()
    store: str | None
    save_no: int
    signal_no: int
    signal: str


class GenerationRow(Table, table=True):
    __tablename__ = "generations"
    __table_args__ = (ForeignKeyConstraint(["job", "attempt"], ["attempts.job", "attempts.number"]),)
    job: int = Field(primary_key=True, sa_type=BigInteger)
    attempt: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    plan: dict[str, Any] | None = _json_or_null()
    ranks: list[int] = _json()
    state: str


class MemberRow(Table, table=True):
    __tablename__ = "members"
    __table_args__ = (ForeignKeyConstraint(["job", "attempt"], ["attempts.job", "attempts.number"]),)
    job: int = Field(primary_key=True, sa_type=BigInteger)
    attempt: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    node: str
    device: str
    exit_code: int | None
    signal: int | None
    cause: str | None
    message: str
    exited_us: int | None = _us_or_null()
    gone_us: int | None = _us_or_null()


class LeaseRow(Table, table=True):
    """A quarantined device is as taken as a held one."""

    __tablename__ = "leases"
    __table_args__ = (
        ForeignKeyConstraint(["job", "attempt", "member"], ["members.job", "members.attempt", "members.number"]),
        unique_where("uq_leases_held", "device", "state IN ('HELD', 'QUARANTINED')"),
        unique_where("uq_leases_promised", "device", "state = 'PROMISED'"),
    )
    id: int = Field(primary_key=True, sa_type=BigInteger)
    device: str
    job: int = Field(sa_type=BigInteger)
    attempt: int
    member: int
    state: str = Field(index=True)
    created_us: int = _us()
    closed_us: int | None = _us_or_null()


class NodeRow(Table, table=True):
    __tablename__ = "nodes"
    id: str = Field(primary_key=True)
    public_key: str
    machine: str
    address: str
    boot: str
    session: str
    state: str
    first_seen_us: int = _us()


class DeviceRow(Table, table=True):
    __tablename__ = "devices"
    id: str = Field(primary_key=True)
    node: str = Field(index=True)
    kind: str
    index: int
    name: str
    memory_bytes: int | None = _us_or_null()
    healthy: bool
    reason: str


class ProfileRow(Table, table=True):
    __tablename__ = "profiles"
    spec_key: str = Field(primary_key=True)
    device_kind: str = Field(primary_key=True)
    fingerprint: str
    profiles: list[Any] = _json()
    total_steps: int | None = _us_or_null()
    global_batch: int | None = _us_or_null()


class RecordRow(Table, table=True):
    """What people write down: teams, users, queues, priority classes, drains, reservations."""

    __tablename__ = "records"
    kind: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    body: dict[str, Any] = _json()


class AccountRow(Table, table=True):
    __tablename__ = "accounts"
    team: str = Field(primary_key=True)
    user: str = Field(primary_key=True)
    gpu_s: float
    lost_gpu_s: float
    recent_gpu_s: float
    recent_us: int = _us()


class EstimateRow(Table, table=True):
    """What was foreseen of a job's end, and the parts of its time."""

    __tablename__ = "estimates"
    job: int = Field(primary_key=True, sa_type=BigInteger, foreign_key="jobs.id")
    moment: str = Field(primary_key=True)
    made_us: int = _us()
    low_us: int = _us()
    mid_us: int = _us()
    high_us: int = _us()
    spread: float
    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    preemptions: float


class EventRow(Table, table=True):
    __tablename__ = "events"
    __table_args__ = (Index(None, "job", "seq"),)
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    time_us: int = _us()
    kind: str
    actor: str
    message: str
    job: int | None = _us_or_null()
    attempt: int | None
    node: str | None
    data: dict[str, Any] = _json()


class KeyRow(Table, table=True):
    """Idempotency keys of submissions."""

    __tablename__ = "idempotency_keys"
    user: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    job: int = Field(sa_type=BigInteger, foreign_key="jobs.id")


class TokenRow(Table, table=True):
    """hash: SHA-256 of the secret, in hex; the secret itself is nowhere."""

    __tablename__ = "tokens"
    __table_args__ = {"sqlite_autoincrement": True}
    id: int | None = Field(default=None, sa_column=Column(BigId, primary_key=True, autoincrement=True))
    hash: str = Field(unique=True)
    name: str
    user: str
    team: str
    role: str
    created_us: int = _us()
    expires_us: int | None = _us_or_null()
    revoked_us: int | None = _us_or_null()


class AuditRow(Table, table=True):
    """Append-only: who did, or was denied, what, and the values before and after."""

    __tablename__ = "audit"
    __table_args__ = {"sqlite_autoincrement": True}
    id: int | None = Field(default=None, sa_column=Column(BigId, primary_key=True, autoincrement=True))
    time_us: int = _us()
    actor: str
    action: str
    target: str
    allowed: bool
    old: Any = _json_or_null()
    new: Any = _json_or_null()
    request: str


class WebhookRow(Table, table=True):
    """sealed: its secret, encrypted. cursor: the last event that it needs no more."""

    __tablename__ = "webhooks"
    __table_args__ = {"sqlite_autoincrement": True}
    id: int | None = Field(default=None, sa_column=Column(BigId, primary_key=True, autoincrement=True))
    name: str
    url: str
    team: str | None
    events: list[str] = _json()
    sealed: str
    by: str
    created_us: int = _us()
    cursor: int = _us()
    failing_us: int | None = _us_or_null()
