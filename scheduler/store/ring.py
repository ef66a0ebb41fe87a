"""The newest committed events in memory, for those who follow them: no database session is held while they wait."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from scheduler.core.entities import Event

SIZE = 20_000


class EventRing:
    """Filled after every commit, on the daemon's one thread. Once closed, all who wait are told to go."""

    def __init__(self, size: int = SIZE) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self._changed = asyncio.Event()
        self.closed = False

    def add(self, events: Iterable[Event]) -> None:
        before = len(self._events), self.newest
        self._events.extend(events)
        if (len(self._events), self.newest) != before:
            self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def newest(self) -> int:
        """The last event's number; 0 where there is none yet."""
        return self._events[-1].seq if self._events else 0

    def after(self, seq: int, limit: int) -> list[Event] | None:
        """Those with a higher number, oldest first; None where some of them may have left the ring."""
        if not self._events or seq >= self.newest:
            return []
        if seq + 1 < self._events[0].seq:
            return None
        first = bisect_right(self._events, seq, key=lambda event: event.seq)
        return [self._events[at] for at in range(first, min(len(self._events), first + limit))]

    async def wait(self, seq: int, timeout_s: float) -> None:
        """Until there is an event with a higher number, the ring is closed, or time is up."""
        if self.closed or self.newest > seq:
            return
        changed = self._changed
        try:
            await asyncio.wait_for(changed.wait(), timeout_s)
        except TimeoutError:
            return
