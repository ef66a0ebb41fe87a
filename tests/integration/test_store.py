"""What the store promises: everything committed is there after any restart, once, on SQLite and on PostgreSQL."""

import base64
import dataclasses
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from cryptography.fernet import Fernet
from rows import (
    ALL,
    ATTEMPT,
    DEVICES,
    EVENTS,
    GENERATION,
    JOB,
    LEASES,
    MEMBERS,
    NODE,
    PROFILE,
    reopened,
)
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from scheduler.core.effects import Effects
from scheduler.core.entities import (
    AttemptState,
    EndCause,
    Job,
    JobState,
    LeaseState,
    Result,
)
from scheduler.core.errors import Code, JctError
from scheduler.core.records import RECORDS
from scheduler.store import repository
from scheduler.store.audit import Audit, AuditEntry
from scheduler.store.repository import Repository, Unavailable
from scheduler.store.rows import TABLES
from scheduler.store.tokens import Role, Tokens
from scheduler.store.vault import Vault
from scheduler.store.webhooks import Webhooks


def test_everything_committed_is_loaded_again_as_it_was(store, database_url):
    store.commit(Effects(rows=list(ALL), events=EVENTS, idempotency=[("eva", "key", 7)]))
    again = reopened(store, database_url)
    state = again.load()
    again.close()
    assert state.jobs == {7: JOB}
    assert state.attempts == {(7, 1): ATTEMPT}
    assert state.generations == {(7, 1, 1): GENERATION}
    assert list(state.members.values()) == MEMBERS
    assert list(state.leases.values()) == LEASES
    assert state.nodes == {"n0": NODE}
    assert list(state.devices.values()) == DEVICES
    assert state.profiles == {("k", "cpu"): PROFILE}
    assert state.keys == {("eva", "key"): 7}
    assert (state.counters.job, state.counters.lease, state.counters.event) == (8, 5, 4)
    assert state.epoch == 2


def test_a_batch_tried_again_changes_nothing(store):
    batch = Effects(rows=list(ALL), events=EVENTS, idempotency=[("eva", "key", 7)])
    store.commit(batch)
    store.commit(batch)
    assert store.history.events(7, after=0, limit=10) == EVENTS
    assert store.load().jobs == {7: JOB}


def test_the_newest_value_wins_within_a_batch(store):
    store.commit(Effects(rows=[JOB, replace(JOB, priority=1)]), Effects(rows=[replace(JOB, priority=2)]))
    assert store.load().jobs[7].priority == 2


def test_devices_leave_and_come_back(store):
    store.commit(Effects(rows=[NODE, *DEVICES]))
    store.commit(Effects(gone_devices=["d0"]), Effects(rows=[DEVICES[0]], gone_devices=["d1"]))
    assert list(store.load().devices) == ["d0"]
    store.commit(Effects(rows=[DEVICES[1]]), Effects(gone_devices=["d1"]))
    assert list(store.load().devices) == ["d0"]


def test_a_device_has_at_most_one_owner_and_one_promise(store):
    store.commit(Effects(rows=list(ALL)))
    for state in (LeaseState.HELD, LeaseState.QUARANTINED):
        with pytest.raises(IntegrityError):
            store.commit(Effects(rows=[replace(LEASES[0], id=9, state=state)]))
    store.commit(Effects(rows=[replace(LEASES[0], id=9, state=LeaseState.PROMISED)]))
    with pytest.raises(IntegrityError):
        store.commit(Effects(rows=[replace(LEASES[0], id=10, state=LeaseState.PROMISED)]))


def test_a_promise_becomes_the_lease_in_the_transaction_that_closes_the_old_one(store):
    store.commit(Effects(rows=[*ALL, replace(LEASES[0], id=9, state=LeaseState.PROMISED)]))
    handover = [
        replace(LEASES[0], id=10, state=LeaseState.PROMISED),
        replace(LEASES[0], id=9, state=LeaseState.HELD),
        replace(LEASES[0], state=LeaseState.CLOSED, closed_us=8),
    ]
    store.commit(Effects(rows=handover))
    assert {lease.id: lease.state for lease in store.load().leases.values() if lease.device == "d0"} == {
        9: LeaseState.HELD,
        10: LeaseState.PROMISED,
    }


def test_a_job_has_at_most_one_open_attempt(store):
    store.commit(Effects(rows=list(ALL)))
    with pytest.raises(IntegrityError):
        store.commit(Effects(rows=[replace(ATTEMPT, number=2)]))
    ended = replace(ATTEMPT, state=AttemptState.ENDED, cause=EndCause.PREEMPTED)
    store.commit(Effects(rows=[replace(ATTEMPT, number=2), ended]))


def test_a_failed_batch_leaves_nothing_behind(store):
    with pytest.raises(IntegrityError):
        store.commit(Effects(rows=[JOB, replace(ATTEMPT, job=99)], events=EVENTS))
    assert store.load().jobs == {}
    assert store.history.events(None, after=0, limit=10) == []


def test_numbers_never_return_even_when_rows_are_deleted(store, database_url):
    store.commit(Effects(rows=[JOB], events=EVENTS))
    with store.transaction() as connection:
        connection.execute(text("DELETE FROM jobs"))
        connection.execute(text("DELETE FROM events"))
    again = reopened(store, database_url)
    counters = again.load().counters
    again.close()
    assert (counters.job, counters.event) == (8, 4)


def test_only_the_newest_finished_jobs_are_loaded_and_the_rest_is_history(store, monkeypatch):
    monkeypatch.setattr(repository, "RECENT_JOBS", 2)
    done = [
        replace(JOB, id=n, state=JobState.DONE, result=Result.FAILED if n % 2 else Result.COMPLETED)
        for n in range(1, 6)
    ]
    store.commit(Effects(rows=[*done, replace(JOB, id=6), replace(ATTEMPT, job=1), replace(GENERATION, job=1)]))
    state = store.load()
    assert list(state.jobs) == [4, 5, 6]
    assert state.attempts == {}
    history = store.history
    assert [story.job.id for story in history.past_jobs(None, 10, None, [])] == [5, 4, 3, 2, 1]
    assert [story.job.id for story in history.past_jobs(4, 2, None, [])] == [3, 2]
    assert [story.job.id for story in history.past_jobs(None, 10, "nlp", ["FAILED"])] == [5, 3, 1]
    assert history.past_jobs(None, 10, "other", []) == []
    story = history.story(1)
    assert story is not None
    assert story.attempts == (replace(ATTEMPT, job=1),)
    assert story.generations == (replace(GENERATION, job=1),)
    assert history.story(99) is None


def test_a_finished_job_that_still_holds_a_device_is_loaded_however_old(store, monkeypatch):
    monkeypatch.setattr(repository, "RECENT_JOBS", 0)
    store.commit(Effects(rows=[*ALL, replace(JOB, state=JobState.DONE, result=Result.NODE_LOST)]))
    assert list(store.load().jobs) == [7]
    assert len(store.load().members) == 2


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind not in RECORDS.values()])
def test_every_field_of_an_entity_has_a_column(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    derived = {"name", "team", "queue"} if kind is Job else set()
    assert fields | derived == {column.name for column in TABLES[kind].columns}


def test_events_are_read_from_a_cursor(store):
    other = replace(EVENTS[0], seq=4, job=8)
    store.commit(Effects(events=[*EVENTS, other]))
    assert [event.seq for event in store.history.events(None, after=1, limit=2)] == [2, 3]
    assert [event.seq for event in store.history.events(8, after=0, limit=9)] == [4]


def test_text_that_a_database_cannot_hold_is_made_visible_not_lost(store):
    store.commit(Effects(rows=[replace(JOB, reason="a\0b\ud800c")]))
    assert store.load().jobs[7].reason == "a␀b?c"


def test_a_second_daemon_is_told_that_there_is_one(store, database_url):
    with pytest.raises(JctError, match="another jctd uses") as caught:
        Repository.open(database_url)
    assert caught.value.code is Code.CONFLICT


def test_the_lock_ends_with_the_process(tmp_path):
    url = f"sqlite:///{tmp_path}/jctd.db"
    program = f"from scheduler.store.repository import Repository; import os; Repository.open({url!r}); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 9
    store = Repository.open(url)
    assert store.epoch == 2
    store.close()


def test_a_daemon_that_lost_its_database_to_another_cannot_commit(store):
    with store.transaction() as connection:
        connection.execute(text("UPDATE meta SET value = value + 1 WHERE name = 'epoch'"))
    with pytest.raises(JctError, match="taken over"):
        store.commit(Effects(rows=[JOB]))


# --- SQLite files ---------------------------------------------------------------------------------------------


def test_the_file_is_private(file):
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_writer_is_durable_and_readers_cannot_write(file):
    store = Repository.open(f"sqlite:///{file}")
    with store.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    with store.read.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("DELETE FROM jobs"))
    store.close()


def test_a_blocked_database_is_unavailable_and_the_same_batch_passes_later(file, monkeypatch):
    monkeypatch.setattr("scheduler.store.engine._WRITER_PRAGMAS", ("journal_mode=WAL", "busy_timeout=1"))
    store = Repository.open(f"sqlite:///{file}")
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    batch = Effects(rows=[replace(JOB, priority=1)])
    with pytest.raises(Unavailable, match="locked"):
        store.commit(batch)
    assert store.load().jobs[7].priority == 90
    blocker.close()
    store.commit(batch)
    assert store.load().jobs[7].priority == 1
    store.close()


def test_writers_in_several_threads_lose_no_update(file):
    store = Repository.open(f"sqlite:///{file}")

    def count() -> None:
        for _ in range(20):
            with store.transaction() as connection:
                value = connection.scalar(text("SELECT value FROM meta WHERE name = 'job'"))
                connection.execute(text("UPDATE meta SET value = :v WHERE name = 'job'"), {"v": value + 1})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load().counters.job == 8 + 80
    store.close()


# --- tokens, audit, webhooks ----------------------------------------------------------------------------------


def test_tokens_are_found_until_they_expire_or_are_revoked_and_survive_restarts(store, database_url):
    tokens = Tokens(store)
    secret, token = tokens.create(name="cli", user="eva", team="nlp", role=Role.USER, now_us=1, expires_us=100)
    _, other = tokens.create(name="cli", user="root", team="ops", role=Role.ADMIN, now_us=1)
    again = reopened(store, database_url)
    tokens = Tokens(again)
    assert tokens.find(secret, 99) == token
    assert tokens.find(secret, 100) is None
    assert tokens.find(secret[:-1], 99) is None
    assert tokens.find("", 99) is None
    tokens.revoke(token.id, 50)
    assert tokens.find(secret, 99) is None
    assert [found.id for found in Tokens(again).all()] == [token.id, other.id]
    assert Tokens(again).find(secret, 99) is None
    with pytest.raises(JctError) as caught:
        tokens.revoke(99, 1)
    assert caught.value.code is Code.NOT_FOUND
    again.close()


def test_the_secret_is_not_in_the_database(file):
    store = Repository.open(f"sqlite:///{file}")
    secret, _ = Tokens(store).create(name="cli", user="eva", team="nlp", role=Role.USER, now_us=1)
    store.close()
    assert secret.removeprefix("jct_").encode() not in file.read_bytes()


def test_the_audit_log_grows(store):
    audit = Audit(store)
    entries = [
        AuditEntry(time_us=n, actor="eva", action="priority", target="job 7", allowed=n > 1, old=1, new={"p": n})
        for n in range(1, 4)
    ]
    for entry in entries:
        audit.append(entry)
    assert [replace(entry, id=None) for entry in audit.newest(2)] == [entries[2], entries[1]]
    assert [replace(entry, id=None) for entry in audit.newest(9, before=3)] == [entries[1], entries[0]]


def test_webhooks_and_how_far_they_have_come_survive_restarts(store, database_url, tmp_path):
    vault = Vault.at(tmp_path)
    webhooks = Webhooks(store, vault)
    fields = {"url": "http://h/", "team": "nlp", "events": ("Ended",), "by": "ida", "now_us": 5, "cursor": 7}
    secret, made = webhooks.create(name="дата", **fields)
    _, other = webhooks.create(name="b", **{**fields, "team": None})
    webhooks.move(made.id, 9, 11)
    webhooks.move(99, 9, 11)
    webhooks.save()
    webhooks.move(made.id, 10, None)
    webhooks.remove(other.id)
    again = reopened(store, database_url)
    try:
        found = Webhooks(again, vault)
        assert found.all() == [replace(made, cursor=9, failing_us=11)], "what was moved after the last save is repeated"
        assert found.key_of(made) == base64.b64decode(secret.removeprefix("whsec_"))
        with pytest.raises(JctError, match=r"another secrets\.key"):
            Webhooks(again, Vault(Fernet.generate_key())).key_of(made)
        assert found.create(name="c", **fields)[1].id > other.id, "ids never return"
    finally:
        again.close()
