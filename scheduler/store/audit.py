"""The audit log: append-only, every admin act and every denied act."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from scheduler.store.repository import Repository
from scheduler.store.rows import clean, to_entity
from scheduler.store.tables import AuditRow, table_of

_AUDIT = table_of(AuditRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did, or was denied, what to which thing; old and new values as JSON. request: the request's id."""

    time_us: int
    actor: str
    action: str
    target: str
    allowed: bool = True
    old: Any = None
    new: Any = None
    request: str = ""
    id: int | None = None


class Audit:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def append(self, entry: AuditEntry) -> None:
        row = {name: clean(getattr(entry, name)) for name in AuditEntry.__slots__ if name != "id"}
        with self._repository.transaction() as connection:
            connection.execute(_AUDIT.insert().values(row))

    def newest(self, limit: int, before: int | None = None) -> list[AuditEntry]:
        """Newest first; with id < before, where given."""
        query = select(_AUDIT).order_by(_AUDIT.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(_AUDIT.c.id < before)
        with self._repository.read.connect() as connection:
            return [to_entity(AuditEntry, row) for row in connection.execute(query).mappings()]
