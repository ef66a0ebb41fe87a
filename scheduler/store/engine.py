"""Engines. On SQLite, writers begin with BEGIN IMMEDIATE: the driver's default loses updates silently."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from scheduler.core.errors import Code, JctError

BUSY_TIMEOUT_MS = 5_000
_WRITER_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_TIMEOUT_MS}")
_READER_PRAGMAS = ("query_only=ON", f"busy_timeout={BUSY_TIMEOUT_MS}")


def parse_url(text: str) -> URL:
    """A database URL with the driver that jctd uses. Raises JctError for anything but SQLite files and PostgreSQL."""
    try:
        url = make_url(text)
    except ArgumentError:
        raise JctError(Code.BAD_SPEC, "the database URL cannot be read", hint="sqlite:////path/to/jctd.db") from None
    match url.get_backend_name():
        case "sqlite" if url.database and url.database != ":memory:":
            return url.set(drivername="sqlite+pysqlite")
        case "postgresql":
            return url.set(drivername="postgresql+psycopg")
    raise JctError(
        Code.BAD_SPEC,
        f"the database URL {url.render_as_string()!r} names neither an SQLite file nor PostgreSQL",
        hint="sqlite:////path/to/jctd.db or postgresql://user@host/database",
    )


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def write_engine(url: URL) -> Engine:
    """For transactions that must last."""
    return (
        _sqlite(url, _WRITER_PRAGMAS, "BEGIN IMMEDIATE") if is_sqlite(url) else _postgres(url, "synchronous_commit=on")
    )


def read_engine(url: URL) -> Engine:
    """For short reads from any thread; it cannot write."""
    return (
        _sqlite(url, _READER_PRAGMAS, "BEGIN") if is_sqlite(url) else _postgres(url, "default_transaction_read_only=on")
    )


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _sqlite(url: URL, pragmas: tuple[str, ...], begin: str) -> Engine:
    engine = create_engine(url, json_serializer=_to_json, json_deserializer=msgspec.json.decode)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgres(url: URL, setting: str) -> Engine:
    return create_engine(
        url,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "options": f"-c {setting} -c timezone=UTC", "application_name": "jctd"},
    )
