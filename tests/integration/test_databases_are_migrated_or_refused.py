"""Databases of other versions, of other programs, damaged, read-only or away: migrated whole, or refused untouched."""

import shutil
import subprocess

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from rows import ALL, EVENTS, JOB, reopened
from sqlalchemy import text

from scheduler.core.effects import Effects
from scheduler.core.errors import JctError
from scheduler.store import migrate
from scheduler.store.engine import parse_url, write_engine
from scheduler.store.repository import Repository
from scheduler.store.tables import Table
from scheduler.store.tokens import Role, Tokens


def test_the_schema_is_created_once_and_said(store, database_url):
    assert "created" in store.migrated
    again = reopened(store, database_url)
    assert again.migrated == ""
    again.close()


def test_b06_migrations_go_up_down_and_up_with_rows_in_the_tables(store, database_url):
    store.commit(Effects(rows=list(ALL), events=EVENTS, idempotency=[("eva", "key", 7)]))
    Tokens(store).create(name="t", user="u", team="t", role=Role.USER, now_us=1)
    store.close()
    engine = write_engine(parse_url(database_url))
    with engine.begin() as connection:
        command.downgrade(migrate.alembic_config(connection), "base")
    assert migrate.upgrade(engine, migrate.check_version(engine))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []
    engine.dispose()


def test_b06_a_failing_migration_rolls_back_whole(database_url, monkeypatch):
    def upgrade(config, revision):
        config.attributes["connection"].execute(text("CREATE TABLE half (id INTEGER)"))
        raise RuntimeError("interrupted")

    monkeypatch.setattr(migrate.command, "upgrade", upgrade)
    with pytest.raises(RuntimeError):
        Repository.open(database_url)
    monkeypatch.undo()
    Repository.open(database_url).close()


def test_a_newer_database_is_left_alone(store, database_url):
    store.commit(Effects(rows=[JOB]))
    with store.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(JctError, match="newer jctd: its schema is 9999"):
        Repository.open(database_url)


def test_a_database_of_something_else_is_left_alone(database_url):
    engine = write_engine(parse_url(database_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (id INTEGER)"))
    engine.dispose()
    with pytest.raises(JctError, match=r"not jctd's: it has other tables \(customers\)"):
        Repository.open(database_url)


# --- SQLite files ---------------------------------------------------------------------------------------------


def refused(path, match: str) -> None:
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(JctError, match=match):
        Repository.open(f"sqlite:///{path}")
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_cut_off_file_is_refused_untouched(file):
    file.write_bytes(file.read_bytes()[:-4096])
    refused(file, "damaged")


def test_a_garbled_file_is_refused_untouched(file):
    file.write_bytes(b"not a database" * 1000)
    refused(file, "damaged")


def test_a_lost_or_emptied_file_never_becomes_a_fresh_queue(file):
    file.write_bytes(b"")
    refused(file, "is empty, though jctd has used it 1 times")
    file.unlink()
    refused(file, "is gone")


def test_a_missing_folder_is_told(tmp_path):
    refused(tmp_path / "nowhere" / "jctd.db", "must exist and be writable")


@pytest.fixture
def read_only_disk(file):
    """The same file on a file system that is mounted read-only."""
    folder = file.parent / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    try:
        for part in file.parent.glob("jctd.db*"):
            shutil.copy(part, folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield folder / file.name
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_b04_a_database_on_a_read_only_disk_is_refused_untouched(read_only_disk):
    refused(read_only_disk, "must exist and be writable|read-only")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense", ""])
def test_other_databases_are_refused_with_an_example(url):
    with pytest.raises(JctError) as caught:
        Repository.open(url)
    assert "sqlite:////" in str(caught.value.hint)


def test_an_unreachable_server_is_told_without_the_password():
    with pytest.raises(JctError, match="cannot reach") as caught:
        Repository.open("postgresql://jctd:hunter2@127.0.0.1:1/jctd")
    assert "hunter2" not in str(caught.value)
