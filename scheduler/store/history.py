"""Reads of what may have left the daemon's memory: short sessions, from any thread, never held."""

from collections.abc import Iterable

from sqlalchemy import Engine, select

from scheduler.core.entities import Attempt, Estimate, Event, Generation, Job, JobState, Member
from scheduler.core.story import Story
from scheduler.store.rows import TABLES, clean, to_entity

MAX_PAGE = 1_001
"""The largest page of the REST API, and the one more that tells whether another page follows."""


class History:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def events(self, job: int | None, after: int, limit: int) -> list[Event]:
        """Oldest first, with seq > after; of one job or of all."""
        table = TABLES[Event]
        query = select(table).where(table.c.seq > after).order_by(table.c.seq).limit(min(limit, MAX_PAGE))
        if job is not None:
            query = query.where(table.c.job == job)
        with self._engine.connect() as connection:
            return [to_entity(Event, row) for row in connection.execute(query).mappings()]

    def past_jobs(self, before: int | None, limit: int, team: str | None, results: Iterable[str]) -> list[Story]:
        """DONE jobs, newest first, with id < before; of one team and with one of the results, where given."""
        table = TABLES[Job]
        query = select(table.c.id).where(table.c.state == JobState.DONE)
        if before is not None:
            query = query.where(table.c.id < before)
        if team is not None:
            query = query.where(table.c.team == clean(team))
        if results := list(results):
            query = query.where(table.c.result.in_(results))
        query = query.order_by(table.c.id.desc()).limit(min(limit, MAX_PAGE))
        with self._engine.connect() as connection:
            ids = list(connection.scalars(query))
        return self._stories(ids)

    def story(self, job: int) -> Story | None:
        """One job with all its attempts."""
        return next(iter(self._stories([job])), None)

    def _stories(self, ids: list[int]) -> list[Story]:
        """In one session, so that the parts of a story fit together."""
        with self._engine.connect() as connection:

            def rows(kind: type, column: str) -> list[dict[str, object]]:
                table = TABLES[kind]
                query = select(table).where(table.c[column].in_(ids)).order_by(*table.primary_key)
                return [dict(row) for row in connection.execute(query).mappings()]

            jobs = {row["id"]: to_entity(Job, row) for row in rows(Job, "id")}
            attempts = [to_entity(Attempt, row) for row in rows(Attempt, "job")]
            generations = [to_entity(Generation, row) for row in rows(Generation, "job")]
            members = [to_entity(Member, row) for row in rows(Member, "job")]
            estimates = [to_entity(Estimate, row) for row in rows(Estimate, "job")]
        return [
            Story(
                job=jobs[id],
                attempts=tuple(item for item in attempts if item.job == id),
                generations=tuple(item for item in generations if item.job == id),
                members=tuple(item for item in members if item.job == id),
                estimates=tuple(sorted((item for item in estimates if item.job == id), key=lambda e: e.made_us)),
            )
            for id in ids
            if id in jobs
        ]
