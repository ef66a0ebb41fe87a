"""What the REST routes may ask of the running daemon. `scheduler.daemon` implements it; tests use a small one."""

from collections.abc import Callable, Sequence
from typing import Protocol

from scheduler.core.entities import Event
from scheduler.core.events import Request
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.forecast.forecaster import Forecaster
from scheduler.protocol.messages import Chunk
from scheduler.protocol.spec import JobSpec
from scheduler.store.ring import EventRing
from scheduler.store.webhooks import Webhooks


class Cluster(Protocol):
    """Requests return after their commit and raise JctError. Live reads look at `state` on the daemon's one thread."""

    @property
    def state(self) -> State: ...

    @property
    def half_life_s(self) -> float:
        """In which what a team has used counts half."""

    @property
    def forecasts(self) -> Forecaster: ...

    @property
    def ring(self) -> EventRing:
        """The newest committed events."""

    @property
    def webhooks(self) -> Webhooks: ...

    def metrics(self) -> bytes:
        """In Prometheus' text format."""

    def now_us(self) -> int: ...

    def trouble(self) -> str:
        """Why the daemon cannot take requests now (a blocked database, say); empty where it can."""

    async def submit(
        self, spec: JobSpec, spec_key: str, user: str, key: str | None, sealed: str = "",
        past: tuple[tuple[int, str], ...] = (),
    ) -> int:
        """The new job's id, or the id that the same idempotency key got before."""

    async def cancel(self, job: int, actor: str, reason: str) -> None: ...

    async def hold(self, job: int, actor: str) -> None: ...

    async def release(self, job: int, actor: str) -> None: ...

    async def ask(self, make: Callable[[int], Request]) -> int:
        """Any request of the core, made with the number it gets; the job's id, or 0 where it is about none."""

    async def read_log(
        self, job: int, attempt: int, member: int, offset: int, limit: int, since_s: float | None = None
    ) -> Chunk:
        """Asks the member's node; NOT_FOUND for an unknown member, a Chunk with `missing` where the log is away.

        since_s: instead of an offset, for what was written in so many last seconds.
        """

    async def events(self, job: int | None, after: int, limit: int) -> list[Event]:
        """From the database, oldest first, with seq > after."""

    async def past_jobs(self, before: int | None, limit: int, team: str | None, results: Sequence[str]) -> list[Story]:
        """DONE jobs from the database, newest first, with id < before; `History.past_jobs` in a thread."""

    async def story(self, job: int) -> Story | None:
        """One job from the database, also when it has left the daemon's memory; `History.story` in a thread."""
