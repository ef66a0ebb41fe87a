"""Runs the core on a real clock: one thread of events, one writer thread, one commit a batch.

A batch goes through five steps: collect events for up to 10 ms, step the core through them, commit everything in one
transaction, then answer requests and send Targets, then ask the policy. Nothing leaves before the commit. While the
database is blocked the same batch is tried again, requests are refused after 5 s, and heartbeats go on.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from policies.model.decision import Decisions
from scheduler.core.effects import Effects, Plan, Reply
from scheduler.core.errors import Code, JctError
from scheduler.core.events import CoreEvent, Planned, Request, Tick
from scheduler.core.passes import take_plan
from scheduler.core.settings import US, CoreSettings
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.timers import next_deadline
from scheduler.pass_process import PassFailed, PassProcess
from scheduler.store.repository import Repository, Unavailable

log = structlog.get_logger()

BATCH_S = 0.01
BATCH_EVENTS = 200
ADMIT_S = 5.0
RETRY_S = 0.5


class Driver:
    """after_commit: called with each committed batch's effects; it sends what is to be sent.

    trouble: why batches are not committed at present, empty when they are.
    """

    def __init__(
        self, state: State, repository: Repository, passes: PassProcess, settings: CoreSettings,
        now_us: Callable[[], int],
    ) -> None:
        self.state = state
        self.settings = settings
        self.now_us = now_us
        self.trouble = ""
        self.after_commit: Callable[[Effects], None] = lambda effects: None
        self._repository = repository
        self._passes = passes
        self._pass: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[CoreEvent] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = itertools.count(1)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        state.started_us = now_us()
        state.plan_wanted = True

    def post(self, event: CoreEvent) -> None:
        """An event that nobody waits for."""
        self._events.put_nowait(event)

    async def ask(self, make: Callable[[int], Request]) -> int:
        """A request, answered after its commit with the job's id. Raises JctError; BUSY when the database is blocked,
        in which case the request may still take effect: the same idempotency key is safe."""
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.post(make(number))
        try:
            reply = await asyncio.wait_for(future, ADMIT_S)
        except TimeoutError:
            raise JctError(
                Code.BUSY, "the database does not take writes at present", hint="try again with the same key"
            ) from None
        finally:
            self._waiting.pop(number, None)
        if reply.error is not None:
            raise reply.error
        assert reply.job is not None
        return reply.job

    async def run(self) -> None:
        """For the daemon's life."""
        try:
            await self._passes.start()
            while True:
                await self._turn(await self._collect())
        finally:
            if self._pass is not None:
                self._pass.cancel()
            await self._passes.close()
            self._writer.shutdown(wait=True)

    async def _collect(self) -> list[CoreEvent]:
        """The first event, or a Tick when a timer is due; then whatever comes within a moment."""
        due_s = (next_deadline(self.state, self.now_us(), self.settings) - self.now_us()) / US
        try:
            batch = [await asyncio.wait_for(self._events.get(), max(0.0, due_s))]
        except TimeoutError:
            return [Tick()]
        await asyncio.sleep(BATCH_S)
        while len(batch) < BATCH_EVENTS and not self._events.empty():
            batch.append(self._events.get_nowait())
        return [*batch, Tick()]

    async def _turn(self, batch: list[CoreEvent]) -> None:
        out = Effects()
        for event in batch:
            out.extend(step(self.state, event, self.now_us(), self.settings))
        await self._commit(out)
        for reply in out.replies:
            if (future := self._waiting.get(reply.request)) is not None and not future.done():
                future.set_result(reply)
        self.after_commit(out)
        if (plan := take_plan(self.state, self.now_us(), self.settings.half_life_s)) is not None:
            self._pass = asyncio.create_task(self._decide(plan))

    async def _commit(self, out: Effects) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._writer, self._repository.commit, out)
                self.trouble = ""
                return
            except Unavailable as error:
                self.trouble = error.message
                log.warning("database does not take the batch; trying again", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _decide(self, plan: Plan) -> None:
        try:
            answer = await self._passes.decide(plan.snapshot)
        except PassFailed as error:
            log.error("scheduling pass failed", why=str(error))
            self.post(Planned(decisions=Decisions(plan.snapshot.version), error=str(error)))
        else:
            self.post(Planned(decisions=answer.decisions, nonce=secrets.token_hex(8), late=answer.late))
