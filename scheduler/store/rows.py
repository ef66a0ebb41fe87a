"""Entities to rows and back. A row is a plain dictionary with the column names of `scheduler.store.tables`."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from sqlalchemy import RowMapping, Table

from scheduler.core.entities import (
    Attempt,
    AttemptState,
    Device,
    Entity,
    Estimate,
    Event,
    Generation,
    Job,
    Lease,
    LeaseState,
    Member,
    Node,
    ProfileRecord,
)
from scheduler.core.records import RECORDS, Account, Record
from scheduler.store import tables

_T = TypeVar("_T")

_RECORDS = tables.table_of(tables.RecordRow)
TABLES: dict[type, Table] = {
    Node: tables.table_of(tables.NodeRow),
    Device: tables.table_of(tables.DeviceRow),
    Job: tables.table_of(tables.JobRow),
    Attempt: tables.table_of(tables.AttemptRow),
    Generation: tables.table_of(tables.GenerationRow),
    Member: tables.table_of(tables.MemberRow),
    Lease: tables.table_of(tables.LeaseRow),
    ProfileRecord: tables.table_of(tables.ProfileRow),
    Account: tables.table_of(tables.AccountRow),
    Estimate: tables.table_of(tables.EstimateRow),
    **dict.fromkeys(RECORDS.values(), _RECORDS),
    Event: tables.table_of(tables.EventRow),
}
"""In the order in which rows are written: what is referred to comes first."""

_LEASE_ORDER = [LeaseState.CLOSED, LeaseState.QUARANTINED, LeaseState.HELD, LeaseState.PROMISED]


def clean(value: Any) -> Any:
    """Text that every database takes: NUL and lone surrogates become visible stand-ins."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


def to_row(entity: Entity | Event) -> dict[str, Any]:
    row = {name: clean(value) for name, value in msgspec.to_builtins(entity).items()}
    if isinstance(entity, Record):
        return {"kind": entity.kind, "name": clean(entity.name), "body": row}
    if isinstance(entity, Job):
        row |= {name: row["spec"][name] for name in ("name", "team", "queue")}
    return row


def to_entity(kind: type[_T], row: Mapping[str, Any] | RowMapping) -> _T:
    """Columns that the entity lacks are ignored; fields that an old row lacks take their defaults."""
    return msgspec.convert(row["body"] if kind in RECORDS.values() else dict(row), kind)


def key_of(entity: Entity) -> tuple[Any, ...]:
    """The primary key, in the table's order."""
    return tuple(getattr(entity, column.name) for column in TABLES[type(entity)].primary_key)


def in_write_order(entities: Iterable[Entity]) -> list[Entity]:
    """Within a table, what frees comes before what takes, or the partial unique indexes would object."""

    def order(entity: Entity) -> int:
        if isinstance(entity, Lease):
            return _LEASE_ORDER.index(entity.state)
        return 0 if isinstance(entity, Attempt) and entity.state is AttemptState.ENDED else 1

    return sorted(entities, key=order)
