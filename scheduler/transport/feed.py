"""Committed events in order, for those outside who must miss none: from the ring, else from the database."""

import asyncio

from scheduler.core.entities import Event
from scheduler.core.state import State
from scheduler.core.story import Story, story_of
from scheduler.store.history import History
from scheduler.store.ring import EventRing


class Feed:
    def __init__(self, state: State, ring: EventRing, history: History) -> None:
        self.state, self._ring, self._history = state, ring, history

    async def after(self, seq: int, limit: int, wait_s: float) -> list[Event]:
        """Those with a higher number, oldest first; waits for the first of them, and is empty where none has come."""
        found = self._ring.after(seq, limit)
        if not found and (found is None or seq < self._ring.newest or not self._ring.newest):
            found = await asyncio.to_thread(self._history.events, None, seq, limit)
        if not found and self._ring.closed:
            await asyncio.sleep(wait_s)  # the daemon stops, and a closed ring keeps nobody waiting
        elif not found:
            await self._ring.wait(seq, wait_s)
        return found

    async def story(self, job: int) -> Story | None:
        """From memory, else from the database."""
        known = self.state.jobs.get(job)
        if known is not None:
            return story_of(self.state, known)
        return await asyncio.to_thread(self._history.story, job)
