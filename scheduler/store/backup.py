"""A copy of an SQLite database that is whole and checked, and its restoration. PostgreSQL has pg_dump."""

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from scheduler.core.errors import Code, JctError
from scheduler.store.guard import FileLock

DATABASE = "jctd.db"


def backup(state: Path, target: Path) -> str:
    """Copy `state`/jctd.db while its daemon runs; the copy appears whole or not at all. Raises JctError.

    Keys are not in it: `daemon.key_secret` and `secrets.key` must be kept apart from it, or a thief had both.
    """
    source = state / DATABASE
    if not source.is_file():
        below = state / "daemon"  # where `jct up` has it
        hint = "a PostgreSQL database is backed up by pg_dump"
        if (below / DATABASE).is_file():
            hint = f"that of `jct up` is: --state {below}"
        raise JctError(Code.NOT_FOUND, f"there is no {source}", hint=hint)
    if target.exists():
        raise JctError(Code.CONFLICT, f"{target} exists already; jctd overwrites no backup")
    temporary = target.with_name(target.name + ".tmp")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with _reading(source) as old, contextlib.closing(sqlite3.connect(temporary)) as new:
            old.backup(new, pages=1_000)
        said = _checked(temporary)
        temporary.replace(target)
    except (OSError, sqlite3.Error) as error:
        temporary.unlink(missing_ok=True)
        raise JctError(Code.CONFLICT, f"the backup failed: {error}; {source} is untouched") from None
    return f"backed up to {target}: {said}"


def restore(state: Path, source: Path) -> str:
    """Put a checked backup in the place of the database, which is kept beside it. The daemon must not run.

    Raises JctError, with everything as it was, where the backup is damaged or a daemon runs.
    """
    database = state / DATABASE
    with contextlib.closing(FileLock(database)) as lock:
        if not source.is_file():
            raise JctError(Code.NOT_FOUND, f"there is no {source}")
        said = _checked(source)
        fresh = database.with_name(DATABASE + ".restored")
        shutil.copyfile(source, fresh)
        fresh.chmod(0o600)
        epoch = lock.last_epoch()
        with contextlib.closing(sqlite3.connect(fresh)) as connection, connection:
            # Agents ignore lower epochs: the restored daemon must be newer than the one that was lost.
            connection.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'epoch'", (epoch,))
        kept = ""
        if database.exists():
            old = database.with_name(f"{DATABASE}.before-restore-{time.time_ns()}")
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{database}{suffix}", f"{old}{suffix}")
            kept = f"; what was there is kept as {old.name}"
        fresh.replace(database)
    return f"restored {said}{kept}"


def _reading(path: Path) -> "contextlib.closing[sqlite3.Connection]":
    return contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True))


def _checked(path: Path) -> str:
    """What a good copy holds. Raises JctError for anything else."""
    try:
        with _reading(path) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            jobs = connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
            events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    except sqlite3.Error as error:
        raise JctError(Code.CONFLICT, f"{path} is no good backup: {error}") from None
    if found != "ok":
        raise JctError(Code.CONFLICT, f"{path} is damaged: {found}")
    return f"{jobs} jobs and {events} events"
