"""The daemon's forecasts: made anew when something has changed, not too often, and whenever somebody asks.

One question at a time goes to the child process; nothing here ever waits for it but those who asked.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from scheduler.core.entities import Attempt, AttemptKind, AttemptState, Entity, Estimate, Job, JobState, Moment
from scheduler.core.errors import Code, JctError
from scheduler.core.estimates import missing
from scheduler.core.events import CoreEvent, Estimated
from scheduler.core.snapshot import take_snapshot
from scheduler.core.state import State
from scheduler.forecast import fork as forks
from scheduler.forecast import truth
from scheduler.forecast.outlook import Outlook, Scores, look
from scheduler.forecast.process import Foresee, Foreseen, NotForeseen, Weigh, Weighed, World
from scheduler.forecast.whatif import Comparison, compare, imagine

log = structlog.get_logger()

REST_S = 2.0
REST_TIMES = 4.0
"""Between two forecasts: so long, and so many times as long as the last one took."""

STALE_S = 30.0
"""Older ones are made anew when somebody asks, and while jobs live."""

PATIENCE_S = 20.0
ASKED_BUDGET_S = 10.0


class Foreseer(Protocol):
    async def foresee(self, question: Foresee) -> Foreseen: ...

    async def weigh(self, question: Weigh) -> Weighed: ...

    async def close(self) -> None: ...


class Forecaster:
    """outlooks: the newest, by job. post: takes events for the core."""

    def __init__(
        self, state: State, foreseer: Foreseer, policy: str, now_us: Callable[[], int],
        post: Callable[[CoreEvent], None],
    ) -> None:
        self.outlooks: dict[int, Outlook] = {}
        self.policy = policy
        self._state, self._foreseer, self._now_us, self._post = state, foreseer, now_us, post
        self._seed = 0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    def after_commit(self, rows: Sequence[Entity]) -> None:
        """Something that may move starts and ends."""
        if any(isinstance(row, Job | Attempt) for row in rows):
            self._changed.set()

    async def run(self) -> None:
        """For the daemon's life."""
        try:
            while True:
                await self._wait()
                begun = self._now_us()
                await self._try_to_refresh()
                await asyncio.sleep(REST_S + REST_TIMES * (self._now_us() - begun) / 1e6)
        finally:
            await self._foreseer.close()

    async def _wait(self) -> None:
        """For a change; while jobs live, no longer than forecasts keep."""
        living = any(job.state is not JobState.DONE for job in self._state.jobs.values())
        try:
            await asyncio.wait_for(self._changed.wait(), STALE_S if living else None)
        except TimeoutError:
            return

    async def _try_to_refresh(self) -> None:
        try:
            await self.refresh()
        except NotForeseen as error:
            log.warning("no forecast", why=str(error))

    async def refresh(self) -> None:
        """Raises NotForeseen. Who asks meanwhile shares the answer; who goes away does not break it off."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        async with self._turn:
            self._changed.clear()
            data, now_us = self._fork(), self._now_us()
            self._seed += 1
            [futures] = await self._foreseer.foresee(Foresee((World(data, self.policy),), self._seed))
            scores = Scores.of(truth.scores(self._state))
            self.outlooks = await asyncio.to_thread(look, futures, now_us, scores)  # of thousands of jobs: not here
        if estimates := tuple(self._estimates()):
            self._post(Estimated(estimates=estimates))

    async def outlook(self, job: int) -> Outlook | None:
        """Of a job that has not ended, new enough; None where nothing is known in time."""
        for _ in range(2):  # one that was under way may have begun before the job came
            if job in self.outlooks and not self._is_old(job):
                break
            try:
                await asyncio.wait_for(self.refresh(), PATIENCE_S)
            except (TimeoutError, NotForeseen) as error:
                log.warning("no forecast", why=str(error) or "it took too long")
                break
        return self.outlooks.get(job)

    def _is_old(self, job: int) -> bool:
        """It was made too long ago, or before the job's present attempt came as far as it is."""
        made_us = self.outlooks[job].made_us
        attempt = self._state.open_attempt(job)
        stamps = (attempt.starting_us, attempt.running_us, attempt.stopping_us) if attempt is not None else ()
        return self._now_us() - made_us > STALE_S * 1e6 or any(at is not None and at > made_us for at in stamps)

    async def submitted(self, event: CoreEvent) -> Outlook:
        """What would become of a job that is submitted now. Raises JctError."""
        job, data = self._state.counters.job, self._fork()
        imagined = await asyncio.to_thread(imagine, data, [event])
        [futures] = await self._ask(World(imagined, self.policy))
        return look(futures, self._now_us(), Scores.of(truth.scores(self._state)))[job]

    async def compare(self, events: Sequence[CoreEvent], policy: str | None = None) -> Comparison:
        """The world as it goes on by itself, beside the one with these events and this policy. Raises JctError."""
        data = self._fork()
        imagined = await asyncio.to_thread(imagine, data, events)
        before, after = await self._ask(World(data, self.policy), World(imagined, policy or self.policy))
        return compare(self._state, before, after)

    async def terms(self) -> Weighed:
        """What the place in the queue of each job that has not ended is made of. Raises JctError."""
        question = Weigh(take_snapshot(self._state, self._now_us()), self.policy)
        try:
            return await asyncio.shield(asyncio.create_task(self._weigh(question)))
        except NotForeseen as error:
            raise JctError(Code.BUSY, str(error), hint="try again later") from error

    async def _weigh(self, question: Weigh) -> Weighed:
        async with self._turn:
            return await self._foreseer.weigh(question)

    async def _ask(self, *worlds: World) -> Foreseen:
        try:
            return await asyncio.shield(asyncio.create_task(self._one(worlds)))
        except NotForeseen as error:
            raise JctError(Code.BUSY, str(error), hint="try again later") from error

    async def _one(self, worlds: tuple[World, ...]) -> Foreseen:
        async with self._turn:
            self._seed += 1
            return await self._foreseer.foresee(Foresee(worlds, self._seed, budget_s=ASKED_BUDGET_S))

    def _fork(self) -> bytes:
        return forks.encode(forks.take(self._state, self._now_us()))

    def _estimates(self) -> list[Estimate]:
        """First ranges, and those after the first start, that are not kept yet."""
        found = []
        for outlook in self.outlooks.values():
            job = self._state.jobs.get(outlook.job)
            if job is None or outlook.end is None:
                continue
            if missing(self._state, job.id, Moment.SUBMIT):
                found.append(_estimate(job, outlook, Moment.SUBMIT))
            if _trains(self._state, job) and missing(self._state, job.id, Moment.START):
                found.append(_estimate(job, outlook, Moment.START))
        return found


def _trains(state: State, job: Job) -> bool:
    attempt = state.open_attempt(job.id)
    return attempt is not None and attempt.kind is not AttemptKind.PROBE and attempt.state is AttemptState.RUNNING


def _estimate(job: Job, outlook: Outlook, moment: Moment) -> Estimate:
    """Its parts are those of the middle of the range."""
    assert outlook.end is not None
    names = ("queueing_s", "startup_s", "training_s", "preemptions_s", "cleanup_s")
    parts = {name: getattr(outlook, name) for name in names}
    scale = (outlook.end.mid_us - job.submitted_us) / 1e6 / (sum(parts.values()) or 1.0)
    return Estimate(
        job=job.id, moment=moment, made_us=outlook.made_us, low_us=outlook.end.low_us, mid_us=outlook.end.mid_us,
        high_us=outlook.end.high_us, spread=outlook.end.spread, preemptions=outlook.preemptions,
        **{name: seconds * scale for name, seconds in parts.items()},
    )  # fmt: skip
