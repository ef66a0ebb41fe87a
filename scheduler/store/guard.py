"""Before a database is touched: one daemon at a time, and never a damaged, emptied, foreign or read-only one.

Every error leaves the data as it was.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from scheduler.core.errors import Code, JctError

_ADVISORY_KEY = 0x6A637464  # "jctd"
LAST_HOLDER_S = 3.0
LOOK_S = 0.05
_RESTORE = "restore a backup; jctd changed nothing"


class Lock(Protocol):
    """Held for the daemon's life."""

    def note_epoch(self, epoch: int) -> None: ...

    def close(self) -> None: ...


class FileLock:
    """flock on `<database>.lock`. The file also remembers the last epoch, so that a lost database is noticed."""

    def __init__(self, database: Path) -> None:
        path = Path(f"{database}.lock")
        try:
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        except OSError as error:
            raise JctError(
                Code.CONFLICT,
                f"cannot write {path}: {error.strerror}; the database's folder must exist and be writable",
            ) from None
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise JctError(
                Code.CONFLICT,
                f"another jctd uses {database}",
                hint="there is one daemon a database: stop the other, or give this one its own database",
            ) from None

    def last_epoch(self) -> int:
        """0 where the file was never used."""
        written = os.pread(self._file.fileno(), 64, 0).strip()
        return int(written) if written.isdigit() else 0

    def note_epoch(self, epoch: int) -> None:
        os.pwrite(self._file.fileno(), f"{epoch:<20}\n".encode(), 0)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class AdvisoryLock:
    """PostgreSQL's advisory lock, held by a connection of its own."""

    def __init__(self, url: URL) -> None:
        self._engine: Engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
        try:
            self._connection: Connection = self._engine.connect()
            got = self._take()
        except SQLAlchemyError as error:
            self._engine.dispose()
            reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
            raise JctError(Code.CONFLICT, f"cannot reach {url.render_as_string()}: {reason}") from None
        if not got:
            self.close()
            raise JctError(
                Code.CONFLICT,
                f"another jctd uses {url.render_as_string()}",
                hint="there is one daemon a database: stop the other, or give this one its own database",
            )

    def _take(self) -> bool:
        """The server needs a moment to notice that the last holder's connection has ended."""
        until_s = time.monotonic() + LAST_HOLDER_S
        while not (got := bool(self._ask("SELECT pg_try_advisory_lock(:key)"))) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        return got

    def _ask(self, what: str) -> object:
        return self._connection.scalar(text(what), {"key": _ADVISORY_KEY})

    def note_epoch(self, epoch: int) -> None:
        """The database itself remembers."""

    def close(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self._ask("SELECT pg_advisory_unlock(:key)")
        self._connection.close()
        self._engine.dispose()


def lock_sqlite(path: Path) -> FileLock:
    """Take the lock and look at the file, read-only. Raises JctError where the daemon must not go on."""
    lock = FileLock(path)
    try:
        _check_sqlite(path, lock.last_epoch())
    except BaseException:
        lock.close()
        raise
    return lock


def _what_else(path: Path) -> str:
    """Beginning anew is offered only where nothing is left: a write-ahead log may hold the whole queue."""
    if Path(f"{path}-wal").exists():
        return f"; {path}-wal may still hold the queue, so keep it and what is left of {path} together"
    return f"; or remove {path}.lock to begin with an empty queue"


def _check_sqlite(path: Path, last_epoch: int) -> None:
    if not path.exists() or path.stat().st_size == 0:
        if last_epoch:
            raise JctError(
                Code.CONFLICT,
                f"{path} is {'empty' if path.exists() else 'gone'}, though jctd has used it {last_epoch} times",
                hint=f"restore a backup{_what_else(path)}",
            )
        path.touch(0o600)
        return
    if not os.access(path, os.W_OK) or not _on_writable_disk(path):
        raise JctError(Code.CONFLICT, f"{path} is read-only; jctd must be able to write its database")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise JctError(Code.CONFLICT, f"{path} is damaged: {found}", hint=_RESTORE)


def _on_writable_disk(path: Path) -> bool:
    """Root may write to read-only files, but not to read-only disks."""
    return not os.statvfs(path).f_flag & os.ST_RDONLY
