"""Retention: what ended long ago goes, in small batches; what anybody still needs stays, and so do all sums."""

import asyncio
from dataclasses import replace

import pytest
from rows import ALL, ATTEMPT, GENERATION, JOB, MEMBERS
from small_cluster import SmallCluster
from sqlalchemy import func, select

from scheduler import retention
from scheduler.core.effects import Effects
from scheduler.core.entities import AttemptState, Event, JobState, Lease, LeaseState, Result
from scheduler.core.events import CoreEvent, Forgotten, Submit
from scheduler.core.records import Account
from scheduler.core.settings import US, CoreSettings
from scheduler.jobfile import parse_document
from scheduler.retention import Retention
from scheduler.store.repository import Repository, Unavailable
from scheduler.store.retention import purge
from scheduler.store.rows import TABLES

DAY_US = 86_400 * US


def ended(store: Repository, id: int, at_us: int, events: tuple[int, ...]) -> None:
    """A job that ran and ended, with everything that belongs to one."""
    job = replace(JOB, id=id, state=JobState.DONE, result=Result.COMPLETED, ended_us=at_us)
    attempt = replace(ATTEMPT, job=id, state=AttemptState.ENDED, ended_us=at_us)
    lease = Lease(id=id, device="d", job=id, attempt=1, member=0, state=LeaseState.CLOSED, created_us=1)
    rows = [job, attempt, replace(GENERATION, job=id), replace(MEMBERS[0], job=id), lease]
    told = [Event(seq=seq, time_us=at_us, kind="Ended", actor="jctd", message="", job=id) for seq in events]
    store.commit(Effects(rows=rows, events=told, idempotency=[("eva", f"key-{id}", id)]))


def counts(store: Repository) -> dict[str, int]:
    with store.read.connect() as connection:
        return {t.name: connection.scalar(select(func.count()).select_from(t)) or 0 for t in set(TABLES.values())}


def test_old_jobs_go_with_all_that_is_theirs_and_everything_else_stays(store):
    store.commit(Effects(rows=[*ALL, Account(team="nlp", user="eva", gpu_s=5.0)]))
    before = counts(store)
    for id in (11, 12, 13):
        ended(store, id, at_us=id, events=(id * 2, id * 2 + 1))
    assert purge(store, before_us=13, needed=100, kept=(), limit=10).jobs == (11, 12)
    assert [store.history.story(id) is None for id in (7, 11, 12, 13)] == [False, True, True, False]
    ended_one = {"jobs": 1, "attempts": 1, "generations": 1, "members": 1, "leases": 1, "events": 2}
    assert counts(store) == {name: count + ended_one.get(name, 0) for name, count in before.items()}
    assert store.load().accounts["nlp", "eva"].gpu_s == 5.0
    assert store.load().keys == {("eva", "key-13"): 13}


def test_what_is_too_old_is_not_even_loaded(store):
    ended(store, 11, at_us=11, events=(1,))
    ended(store, 12, at_us=12, events=(2,))
    assert list(store.load().jobs) == [11, 12]
    assert list(store.load(10, ended_since_us=12).jobs) == [12]


def test_numbers_never_return_after_all_has_gone(store):
    ended(store, 40, at_us=1, events=(90,))
    purge(store, before_us=10, needed=100, kept=(), limit=10)
    counters = store.load().counters
    assert (counters.job, counters.lease, counters.event) == (41, 41, 91)


def test_what_is_in_memory_or_awaited_by_a_webhook_stays(store):
    for id in (11, 12, 13):
        ended(store, id, at_us=id, events=(id,))
    assert purge(store, before_us=100, needed=12, kept={11}, limit=10).jobs == (12,)
    assert purge(store, before_us=100, needed=13, kept=(), limit=1).jobs == (11,)


def test_old_events_of_no_job_go_as_well_and_those_of_living_jobs_do_not(store):
    events = [Event(seq=n, time_us=n, kind="NodeUp", actor="jctd", message="", node="n0") for n in range(1, 6)]
    store.commit(Effects(rows=list(ALL), events=[*events, replace(events[0], seq=9, job=7, node=None)]))
    assert purge(store, before_us=4, needed=100, kept=(), limit=2).events == 2
    assert purge(store, before_us=4, needed=2, kept=(), limit=2).events == 0
    assert purge(store, before_us=4, needed=100, kept=(), limit=2).events == 1
    assert [event.seq for event in store.history.events(None, 0, 10)] == [4, 5, 9]


@pytest.fixture
def cluster(tmp_path):
    small = SmallCluster(tmp_path)
    small.settings = CoreSettings(jobs_kept=2, retention_s=86_400.0)
    yield small
    small.close()


def sweeper(cluster: SmallCluster, posted: list[CoreEvent], **more: object) -> Retention:
    async def batch(before_us: int, needed: int, kept: frozenset[int], limit: int):
        return purge(cluster.repository, before_us, needed, kept, limit)

    async def needed() -> int:
        return cluster.state.counters.event - 1

    known = {"keep_s": 86_400.0, "state": cluster.state, "needed": needed, "purge": batch, "now_us": cluster.now_us}
    return Retention(post=posted.append, **{**known, **more})


def test_a_sweep_forgets_in_memory_and_on_disk_and_the_sums_stay(cluster, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    job = {"name": "j", "entrypoint": "m:f", "workdir": "/w", "gpus": 1, "work": {"total": "5 steps"}}
    ids = [
        cluster._ask(Submit(request=1, spec=parse_document(job), spec_key="k", user="eva", key=f"key-{n}"))
        for n in range(5)
    ]
    cluster.advance(60)
    assert all(asyncio.run(cluster.story(id)).job.result == "COMPLETED" for id in ids)
    assert len(cluster.state.jobs) == 2
    used = cluster.state.accounts["default", "eva"]
    asyncio.run(sweeper(cluster, []).sweep())
    assert asyncio.run(cluster.story(ids[0])) is not None, "a day has not passed"

    cluster._now_us += DAY_US + 60 * US
    living = cluster._ask(Submit(request=1, spec=parse_document(job), spec_key="k", user="eva"))
    cluster.advance(1)
    assert list(cluster.state.jobs) == [living]
    posted: list[CoreEvent] = []
    asyncio.run(sweeper(cluster, posted).sweep())
    assert [asyncio.run(cluster.story(id)) for id in ids] == [None] * 5
    assert [len(event.jobs) for event in posted if isinstance(event, Forgotten)] == [2, 2, 1]
    assert posted[-1].data["jobs"] == 5
    for event in posted:
        cluster._step(event)
    assert cluster.state.accounts["default", "eva"] == used == cluster.repository.load().accounts["default", "eva"]
    again = Submit(request=1, spec=parse_document(job), spec_key="k", user="eva", key="key-0")
    assert cluster._ask(again) > living, "a key of a job that is nowhere makes a new one"


def test_a_job_that_ran_for_long_is_not_the_first_to_leave_memory(cluster):
    job = {"name": "j", "entrypoint": "m:f", "workdir": "/w", "gpus": 1}
    long, *short = (
        cluster._ask(Submit(request=1, spec=parse_document({**job, "work": {"total": n}}), spec_key="k", user="eva"))
        for n in ("4000 steps", "5 steps", "5 steps", "5 steps")
    )
    cluster.advance(60)
    assert cluster.state.jobs[long].state is JobState.ACTIVE
    asyncio.run(cluster.cancel(long, "eva", ""))
    cluster.advance(30)
    assert list(cluster.state.jobs) == [long, short[-1]]


def test_a_blocked_database_only_puts_it_off(cluster, monkeypatch):
    tries = []

    async def blocked(*_: object):
        tries.append(1)
        raise Unavailable("locked")

    async def scene() -> None:
        task = asyncio.create_task(sweeper(cluster, [], purge=blocked, keep_s=0.001).run())
        while len(tries) < 3:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scene())
