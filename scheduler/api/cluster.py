"""What the REST routes may ask of the running daemon. `scheduler.daemon` implements it; tests use a small one."""

from typing import Protocol

from scheduler.core.entities import Event, Job
from scheduler.core.state import State
from scheduler.protocol.messages import Chunk
from scheduler.protocol.spec import JobSpec


class Cluster(Protocol):
    """Requests return after their commit and raise JctError. Live reads look at `state` on the daemon's one thread."""

    @property
    def state(self) -> State: ...

    def now_us(self) -> int: ...

    async def submit(self, spec: JobSpec, spec_key: str, user: str, key: str | None) -> int:
        """The new job's id, or the id that the same idempotency key got before."""

    async def cancel(self, job: int, actor: str, reason: str) -> None: ...

    async def hold(self, job: int, actor: str) -> None: ...

    async def release(self, job: int, actor: str) -> None: ...

    async def set_priority(self, job: int, priority: int, actor: str) -> None: ...

    async def read_log(self, job: int, attempt: int, member: int, offset: int, limit: int) -> Chunk:
        """Asks the member's node; NOT_FOUND for an unknown member, a Chunk with `missing` where the log is away."""

    async def events(self, job: int | None, after: int, limit: int) -> list[Event]:
        """From the database, oldest first, with seq > after."""

    async def past_jobs(self, before: int | None, limit: int) -> list[Job]:
        """From the database, newest first, with id < before; includes jobs that left the daemon's memory."""
