"""A node's health: its disk, and what the site's own program says, looked at again and again.

Its devices tell theirs with every sample, see agent/telemetry/sampler.py.

Everything that may hang runs in a thread that nobody waits for, so that heartbeats go on whatever happens here.
"""

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from agent.health_check import HealthCheck
from scheduler.protocol.messages import Health

log = structlog.get_logger()

LOOK_S = 20.0
FREE_BYTES, FREE_SHARE = 2**30, 0.05


class HealthWatch:
    """Looks every `every_s` seconds and tells what it has found."""

    def __init__(
        self, state: Path, check: HealthCheck | None, every_s: float, tell: Callable[[Health], None]
    ) -> None:
        self._look = partial(look, state, check)
        self._check, self._every_s, self._tell = check, every_s, tell
        self._patience_s = LOOK_S + (check.timeout_s if check is not None else 0.0)
        self._last = Health()

    async def run(self) -> None:
        """For the agent's life; at its end the site's program ends as well."""
        try:
            while True:
                found = _in_thread(self._look)
                await asyncio.wait({found}, timeout=self._patience_s)
                if not found.done():
                    self._tell(Health(node="the health checks hang"))
                self._take(await found)
                await asyncio.sleep(self._every_s)
        finally:
            if self._check is not None:
                self._check.end()

    def _take(self, found: Health) -> None:
        if found != self._last:
            log.info("health", node=found.node)
        self._last = found
        self._tell(found)


def look(state: Path, check: HealthCheck | None) -> Health:
    """All checks, one after the other. May hang where a disk or a process does."""
    try:
        reasons = [nearly_full(state), check.ask() if check is not None else ""]
    except Exception as error:  # a check that fails must not end the agent
        return Health(node=f"the health checks failed: {type(error).__name__}: {error}")
    return Health(node="; ".join(filter(None, reasons)))


def nearly_full(folder: Path) -> str:
    """Why the disk is too full for new work, empty where it is not."""
    use = shutil.disk_usage(folder)
    if use.free >= min(FREE_BYTES, FREE_SHARE * use.total):
        return ""
    return f"the disk of {folder} is nearly full: {use.free / 2**20:.0f} MiB are free"


def _in_thread(work: Callable[[], Health]) -> "asyncio.Future[Health]":
    """A daemon thread: one that hangs keeps no process from ending."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Health] = loop.create_future()

    def take(health: Health) -> None:
        if not found.done():
            found.set_result(health)

    def run() -> None:
        health = work()
        with contextlib.suppress(RuntimeError):  # the agent has ended meanwhile
            loop.call_soon_threadsafe(take, health)

    threading.Thread(target=run, name="health", daemon=True).start()
    return found
