"""How long what has ended is remembered: a sweep an hour, in small batches by the daemon's one writer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog
from sqlalchemy.exc import DBAPIError

from scheduler.core.events import CoreEvent, Forgotten, Remark
from scheduler.core.settings import us
from scheduler.core.state import State
from scheduler.driver import Driver
from scheduler.settings import DaemonSettings
from scheduler.store.repository import Repository, Unavailable
from scheduler.store.retention import Purged, purge
from scheduler.store.webhooks import Webhooks

log = structlog.get_logger()

EVERY_S = 3_600.0
BATCH = 200
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """purge: as in `scheduler.store.retention`, in the writer's thread, given `before_us`, what is needed, what is kept
    and a limit. needed: the last event that nobody outside waits for."""

    keep_s: float
    state: State
    purge: Callable[[int, int, frozenset[int], int], Awaitable[Purged]]
    needed: Callable[[], Awaitable[int]]
    post: Callable[[CoreEvent], None]
    now_us: Callable[[], int]

    async def run(self) -> None:
        """For the daemon's life."""
        while True:
            try:
                await self.sweep()
            except (Unavailable, DBAPIError) as error:
                log.warning("nothing is forgotten now; trying again later", error=str(error)[:200])
            await asyncio.sleep(min(EVERY_S, self.keep_s))

    async def sweep(self) -> None:
        """Everything that is older than it may be."""
        jobs = events = 0
        while True:
            before = self.now_us() - us(self.keep_s)
            found = await self.purge(before, await self.needed(), frozenset(self.state.jobs), BATCH)
            jobs, events = jobs + len(found.jobs), events + found.events
            if found.jobs:
                self.post(Forgotten(jobs=found.jobs))
            if max(len(found.jobs), found.events) < BATCH:
                break
            await asyncio.sleep(PAUSE_S)
        if jobs:
            text = f"{jobs} jobs that ended long ago, and {events} old events of no job"
            self.post(Remark(kind="Forgot", message=text, data={"jobs": jobs, "events": events}))


def retention_of(
    settings: DaemonSettings, driver: Driver, repository: Repository, webhooks: Webhooks
) -> Retention:
    """Of a daemon that is to forget."""

    async def needed() -> int:
        cursors = [driver.state.counters.event - 1, *(webhook.cursor for webhook in webhooks.all())]
        if settings.mqtt_url is not None:  # a broker that is named no longer holds nothing up
            cursors.append(await asyncio.to_thread(repository.remembered, "mqtt"))
        return min(cursors)

    async def in_writer(before_us: int, last: int, kept: frozenset[int], limit: int) -> Purged:
        return await driver.write(partial(purge, repository, before_us, last, kept, limit))

    assert settings.retention is not None
    return Retention(
        keep_s=settings.retention, state=driver.state, purge=in_writer, needed=needed, post=driver.post,
        now_us=driver.now_us,
    )  # fmt: skip
