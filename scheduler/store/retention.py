"""Forgets what ended long ago: finished jobs with all that belongs to them, and old events of no job, a few at a time.

What is needed is never touched: jobs that have not ended or are in the daemon's memory, and events that webhooks or the
broker have not got yet. Accounts, records, profiles and the audit log stay.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, exists, select

from scheduler.core.entities import Attempt, Estimate, Event, Generation, Job, JobState, Lease, Member
from scheduler.store.repository import Repository
from scheduler.store.rows import TABLES
from scheduler.store.tables import KeyRow, table_of

_KEYS = table_of(KeyRow)
_EVENTS = TABLES[Event]
_CHILDREN_FIRST = (TABLES[Estimate], TABLES[Lease], TABLES[Member], TABLES[Generation], TABLES[Attempt], _KEYS, _EVENTS)


@dataclass(frozen=True, slots=True)
class Purged:
    """jobs: their ids. events: how many of no job."""

    jobs: tuple[int, ...]
    events: int


def purge(repository: Repository, before_us: int, needed: int, kept: Collection[int], limit: int) -> Purged:
    """At most `limit` jobs that ended before a moment, and as many events from before it, in one transaction.

    needed: the last event that nobody outside waits for. kept: jobs in memory. Raises Unavailable.
    """
    with repository.transaction() as connection:
        jobs = _old_jobs(connection, before_us, needed, kept, limit)
        for table in _CHILDREN_FIRST:
            connection.execute(table.delete().where(table.c.job.in_(jobs)))
        connection.execute(TABLES[Job].delete().where(TABLES[Job].c.id.in_(jobs)))
        return Purged(tuple(jobs), _purge_events(connection, before_us, needed, limit))


def _old_jobs(
    connection: Connection, before_us: int, needed: int, kept: Collection[int], limit: int
) -> list[int]:
    jobs = TABLES[Job]
    awaited = exists().where((_EVENTS.c.job == jobs.c.id) & (_EVENTS.c.seq > needed))
    old = (jobs.c.state == JobState.DONE) & (jobs.c.ended_us < before_us) & ~awaited
    query = select(jobs.c.id).where(old).order_by(jobs.c.ended_us).limit(limit + len(kept))
    return [id for id in connection.scalars(query) if id not in kept][:limit]


def _purge_events(connection: Connection, before_us: int, needed: int, limit: int) -> int:
    """Numbers grow with time, so the first ones are the oldest."""
    oldest = select(_EVENTS.c.seq, _EVENTS.c.time_us).where(_EVENTS.c.job.is_(None), _EVENTS.c.seq <= needed)
    found = connection.execute(oldest.order_by(_EVENTS.c.seq).limit(limit)).all()
    old = [seq for seq, time_us in found if time_us < before_us]
    connection.execute(_EVENTS.delete().where(_EVENTS.c.seq.in_(old)))
    return len(old)
