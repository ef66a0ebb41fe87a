"""The core's entities on disk: open, load, commit. One writer thread commits; short reads may come from any thread."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from scheduler.core.effects import Effects
from scheduler.core.entities import (
    Attempt,
    Device,
    Entity,
    Estimate,
    Event,
    Generation,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
    Node,
    ProfileRecord,
)
from scheduler.core.errors import Code, JctError
from scheduler.core.records import RECORDS, Account
from scheduler.core.state import Counters, State
from scheduler.store import migrate
from scheduler.store.engine import is_sqlite, parse_url, read_engine, write_engine
from scheduler.store.guard import AdvisoryLock, Lock, lock_sqlite
from scheduler.store.history import History
from scheduler.store.rows import TABLES, clean, in_write_order, key_of, to_entity, to_row
from scheduler.store.tables import KeyRow, MetaRow, RecordRow, table_of

RECENT_JOBS = 1_000
RECENT_KEYS = 10_000
_META = table_of(MetaRow)
_KEYS = table_of(KeyRow)
_RECORDS = table_of(RecordRow)
_T = TypeVar("_T")


class Unavailable(JctError):
    """The database did not take the batch now: blocked, full, or away. The same batch may be tried again."""

    def __init__(self, reason: str) -> None:
        super().__init__(Code.BUSY, f"the database does not answer: {reason}", hint="try again")


class Repository:
    """One database, under an exclusive lock and a durable epoch, for the life of one daemon.

    migrated: what `open` did to the schema, empty where nothing. read: for short reads from any thread.
    """

    def __init__(self, *, lock: Lock, write: Engine, read: Engine, migrated: str, epoch: int) -> None:
        self.epoch = epoch
        self.migrated = migrated
        self.history = History(read)
        self.read = read
        self._lock, self._write = lock, write

    @classmethod
    def open(cls, url_text: str) -> "Repository":
        """Lock, check, migrate, and count the epoch up. Raises JctError, with the data untouched, where it must not."""
        url = parse_url(url_text)
        lock: Lock = lock_sqlite(Path(url.database or "")) if is_sqlite(url) else AdvisoryLock(url)
        write, read = write_engine(url), read_engine(url)
        try:
            found = migrate.check_version(read)
            migrated = migrate.upgrade(write, found)
            with write.begin() as connection:
                epoch = 1 + (connection.scalar(select(_META.c.value).where(_META.c.name == "epoch")) or 0)
                _put_meta(connection, "epoch", epoch)
            lock.note_epoch(epoch)
        except BaseException as error:
            write.dispose()
            read.dispose()
            lock.close()
            if isinstance(error, SQLAlchemyError):
                raise JctError(Code.CONFLICT, f"the database cannot be used: {_reason(error)}") from None
            raise
        return cls(lock=lock, write=write, read=read, migrated=migrated, epoch=epoch)

    def close(self) -> None:
        """Let the database go; the lock last."""
        self._write.dispose()
        self.read.dispose()
        self._lock.close()

    # --- everything the core remembers -----------------------------------------------------------------------

    def remember(self, name: str, value: int) -> None:
        """A number of its own, which only grows: how far an outside listener has come."""
        with self.transaction() as connection:
            _put_meta(connection, name, value)

    def remembered(self, name: str) -> int:
        """0 where nothing was remembered."""
        with self.read.connect() as connection:
            return connection.scalar(select(_META.c.value).where(_META.c.name == name)) or 0

    def load(self, jobs_kept: int | None = None, ended_since_us: int = 0) -> State:
        """All jobs that are not DONE or still hold a device, the newest that are, and what belongs to them.

        jobs_kept: of jobs that are DONE; RECENT_JOBS where not given. ended_since_us: which of them are too old for it.
        """
        jobs = TABLES[Job]
        count = RECENT_JOBS if jobs_kept is None else jobs_kept
        done = (jobs.c.state == JobState.DONE) & (func.coalesce(jobs.c.ended_us, 0) >= ended_since_us)
        recent = select(jobs.c.id).where(done).order_by(jobs.c.id.desc()).limit(count)
        state = State(epoch=self.epoch)
        with self.read.connect() as connection:
            open_leases = TABLES[Lease].c.state != LeaseState.CLOSED
            holding = select(TABLES[Lease].c.job).where(open_leases)
            wanted = (jobs.c.state != JobState.DONE) | jobs.c.id.in_(recent.scalar_subquery()) | jobs.c.id.in_(holding)
            ids = select(jobs.c.id).where(wanted).scalar_subquery()
            state.jobs = {job.id: job for job in _entities(connection, Job, wanted)}
            state.attempts = _of_jobs(connection, Attempt, ids)
            state.generations = _of_jobs(connection, Generation, ids)
            state.members = _of_jobs(connection, Member, ids)
            state.estimates = _of_jobs(connection, Estimate, ids)
            state.hold(_entities(connection, Lease, open_leases))
            state.nodes = {node.id: node for node in _entities(connection, Node)}
            state.devices = {device.id: device for device in _entities(connection, Device)}
            state.profiles = {(p.spec_key, p.device_kind): p for p in _entities(connection, ProfileRecord)}
            state.accounts = {(a.team, a.user): a for a in _entities(connection, Account)}
            for name, kind in RECORDS.items():
                found = _entities(connection, kind, _RECORDS.c.kind == name)
                state.book(name).update({record.name: record for record in found})
            keys = connection.execute(select(_KEYS).order_by(_KEYS.c.job.desc()).limit(RECENT_KEYS))
            state.keys = {(row.user, row.key): row.job for row in reversed(keys.all())}
            state.counters = _counters(connection)
        return state

    def commit(self, *batch: Effects) -> None:
        """All of it in one transaction, in the order given. Trying a batch again after a failure is harmless.

        Within one Effects devices leave before rows are written. Raises Unavailable where the database did not take
        it, JctError CONFLICT where another daemon has taken over.
        """
        newest, gone = _newest(batch)
        erased = [record for effects in batch for record in effects.gone_records]
        events = [to_row(event) for effects in batch for event in effects.events]
        keys = [{"user": clean(user), "key": clean(key), "job": job} for e in batch for user, key, job in e.idempotency]
        if not (newest or gone or erased or events or keys):
            return
        with self.transaction() as connection:
            if gone:
                devices = TABLES[Device]
                connection.execute(devices.delete().where(devices.c.id.in_(gone)))
            for kind_name, name in erased:
                row = (_RECORDS.c.kind == kind_name) & (_RECORDS.c.name == clean(name))
                connection.execute(_RECORDS.delete().where(row))
            for kind, table in TABLES.items():
                rows = [to_row(entity) for entity in in_write_order(e for e in newest if type(e) is kind)]
                if rows:
                    connection.execute(_upsert(connection, table), rows)
            if events:
                connection.execute(_upsert(connection, TABLES[Event]), events)
            if keys:
                connection.execute(_upsert(connection, _KEYS), keys)
            _raise_counters(connection, newest, events)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A durable transaction, fenced: it fails where a newer daemon has counted the epoch up."""
        try:
            with self._write.begin() as connection:
                mine = (_META.c.name == "epoch") & (_META.c.value == self.epoch)
                if connection.execute(update(_META).where(mine).values(value=self.epoch)).rowcount != 1:
                    raise JctError(Code.CONFLICT, "another jctd has taken over the database; this one must end")
                yield connection
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise Unavailable(_reason(error)) from error


def _reason(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", error)).strip().splitlines()[0]


def _newest(batch: Sequence[Effects]) -> tuple[list[Entity], list[str]]:
    """The last value of every entity, and the devices that are gone in the end."""
    newest: dict[tuple[Any, ...], Entity] = {}
    gone: dict[str, None] = {}
    for effects in batch:
        for device in effects.gone_devices:
            gone[device] = None
            newest.pop((Device, device), None)
        for entity in effects.rows:
            key = (type(entity), *key_of(entity))
            newest.pop(key, None)
            newest[key] = entity
            if isinstance(entity, Device):
                gone.pop(entity.id, None)
    return list(newest.values()), list(gone)


def _upsert(connection: Connection, table: Table) -> Any:
    """Insert, or replace the row with the same primary key: trying again is harmless."""
    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    rest = {c.name: insert.excluded[c.name] for c in table.columns if not c.primary_key}
    keys = [column.name for column in table.primary_key]
    return insert.on_conflict_do_update(index_elements=keys, set_=rest)


def _entities(connection: Connection, kind: type[_T], *where: Any) -> list[_T]:
    table = TABLES[kind]
    query = select(table).where(*where).order_by(*table.primary_key)
    return [to_entity(kind, row) for row in connection.execute(query).mappings()]


def _of_jobs(connection: Connection, kind: type[_T], ids: Any) -> dict[Any, _T]:
    found = _entities(connection, kind, TABLES[kind].c.job.in_(ids))
    return {key_of(entity): entity for entity in found}  # type: ignore[arg-type]


_COUNTED = {"job": TABLES[Job].c.id, "lease": TABLES[Lease].c.id, "event": TABLES[Event].c.seq}


def _counters(connection: Connection) -> Counters:
    """The next numbers: remembered apart from the rows, since rows may be deleted and numbers never return."""
    remembered = {row.name: row.value for row in connection.execute(select(_META))}
    used = {name: connection.scalar(select(func.max(column))) or 0 for name, column in _COUNTED.items()}
    return Counters(**{name: max(remembered.get(name, 1), used[name] + 1) for name in _COUNTED})


def _raise_counters(connection: Connection, rows: list[Entity], events: list[dict[str, Any]]) -> None:
    used = {
        "job": max((row.id for row in rows if isinstance(row, Job)), default=0),
        "lease": max((row.id for row in rows if isinstance(row, Lease)), default=0),
        "event": max((event["seq"] for event in events), default=0),
    }
    for name, number in used.items():
        if number:
            _put_meta(connection, name, number + 1)


def _put_meta(connection: Connection, name: str, value: int) -> None:
    """Numbers only grow."""
    insert = (
        (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(_META).values(name=name, value=value)
    )
    grown = insert.excluded.value > _META.c.value
    connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"value": value}, where=grown))
