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
from dataclasses import replace
from typing import TypeVar

import structlog

from policies.model.decision import Decisions
from scheduler.core.effects import Effects, Plan, Reply
from scheduler.core.errors import Code, JctError
from scheduler.core.events import CoreEvent, Planned, Request, Tick
from scheduler.core.passes import take_plan
from scheduler.core.settings import US, CoreSettings, us
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.timers import next_deadline
from scheduler.pass_process import PassFailed, PassProcess
from scheduler.store.repository import Repository, Unavailable

log = structlog.get_logger()
_T = TypeVar("_T")

BATCH_S = 0.01
BATCH_EVENTS = 200
ADMIT_S = 5.0
RETRY_S = 0.5
LATE_S = 5.0
LOOK_S = 0.1
PACE = 3.0
"""A pass is followed by a pause of twice its time: long queues do not keep this process and its child busy."""
LONGEST_GAP_S = 2.0


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
        self._open = 0
        self._numbers = itertools.count(1)
        self._due_us = self._looked_us = 0
        self._unlooked = True
        self._given_gap_s = settings.pass_gap_s
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        state.started_us = now_us()
        state.plan_wanted = True

    def post(self, event: CoreEvent) -> None:
        """An event that nobody waits for."""
        self._open += 1
        self._events.put_nowait(event)

    @property
    def settled(self) -> bool:
        """Whether all that was posted is committed and told, and no pass is under way."""
        return self._open == 0 and not self.state.planning

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

    async def write(self, work: Callable[[], _T]) -> _T:
        """What else is to be written, between two batches, in the one writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def run(self) -> None:
        """For the daemon's life."""
        try:
            await self._passes.start()
            while True:
                batch = await self._collect()
                due = self.now_us() >= self._due_us
                if batch or due:
                    await self._turn([*batch, Tick()] if due else batch)
                    self._unlooked = True
                self._open -= len(batch)
        finally:
            if self._pass is not None:
                self._pass.cancel()
            await self._passes.close()
            self._writer.shutdown(wait=True)

    async def _collect(self) -> list[CoreEvent]:
        """The first event, or none when a timer is due; then whatever comes within a moment."""
        batch: list[CoreEvent] = []
        quiet_s = self._quiet_s()
        planned_us = self.now_us() + us(quiet_s)
        try:
            batch.append(await asyncio.wait_for(self._events.get(), quiet_s))
            await asyncio.sleep(BATCH_S)
        except TimeoutError:
            pass
        self._excuse(planned_us)
        while len(batch) < BATCH_EVENTS and not self._events.empty():
            batch.append(self._events.get_nowait())
        return batch

    def _excuse(self, planned_us: int) -> None:
        """This process was away for longer than planned: its database was blocked, or it was stopped. What it could not
        hear meanwhile is held against nobody, as after a start."""
        if (now := self.now_us()) > planned_us + us(LATE_S):
            log.warning("away for longer than planned; nobody is judged for a while", by_s=(now - planned_us) / US)
            self.state.started_us = now

    def _quiet_s(self) -> float:
        """How long there is nothing to do if no event comes. All timers are looked at only now and then: with
        thousands of jobs that takes a while, and none needs to be exact to a tenth of a second."""
        now, look_us = self.now_us(), self._looked_us + us(LOOK_S)
        if now >= self._due_us or (self._unlooked and now >= look_us):
            self._due_us, self._looked_us = next_deadline(self.state, now, self.settings), now
            self._unlooked = False
        until = min(self._due_us, look_us) if self._unlooked else self._due_us
        return max(0.0, (until - now) / US)

    async def _turn(self, batch: list[CoreEvent]) -> None:
        out = Effects()
        for event in batch:
            out.extend(step(self.state, event, self.now_us(), self.settings))
        planned_us = self.now_us()
        await self._commit(out)
        self._excuse(planned_us)
        for reply in out.replies:
            if (future := self._waiting.get(reply.request)) is not None and not future.done():
                future.set_result(reply)
        self.after_commit(out)
        cfg = self.settings
        if (plan := take_plan(self.state, self.now_us(), cfg.pass_gap_s, cfg.half_life_s)) is not None:
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
        """However it ends, the pass is over: else there would never be another."""
        try:
            answer = await self._passes.decide(plan.snapshot)
        except Exception as error:
            log.error("scheduling pass failed", why=str(error), exc_info=not isinstance(error, PassFailed))
            why = str(error) or type(error).__name__
            self.post(Planned(decisions=Decisions(plan.snapshot.version), error=why))
        else:
            self.post(Planned(decisions=answer.decisions, nonce=secrets.token_hex(8), late=answer.late))
        took_s = (self.now_us() - self.state.planned_us) / US
        gap_s = max(self._given_gap_s, min(PACE * took_s, LONGEST_GAP_S))
        self.settings = replace(self.settings, pass_gap_s=gap_s)
