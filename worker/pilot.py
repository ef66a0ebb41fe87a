"""The pilot's decisions: replica 0 of the last stage owns every change inside the running job."""

import time
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from worker.adapt.adapter import Adapter
from worker.adapt.loop import Prepare
from worker.adapt.revision import Reviser
from worker.control import Control
from worker.progress import Progress

NAP_S = 0.002


class Header(IntEnum):
    """What all ranks do at the coming step boundary. It rides on the step's all-reduce, so all know it at once."""

    GO = 0
    SAVE = 1
    SAVE_AND_STOP = 2
    STOP = 3
    CHANGE = 4
    PREPARE = 5
    REVISE = 6

    @property
    def saves(self) -> bool:
        return self in (Header.SAVE, Header.SAVE_AND_STOP)

    @property
    def stops(self) -> bool:
        return self in (Header.SAVE_AND_STOP, Header.STOP)


class Proposed(Protocol):
    """The next generation as the pilot sees it while training goes on."""

    @property
    def known(self) -> bool:
        """It was proposed, and is not dropped."""

    @property
    def ready(self) -> int | None:
        """Its number, when all its members have joined its store."""


class Pilot:
    """Decides the header. One slot: stop, then the next generation, then a revision of this one, then a save that was
    asked for or is due.

    every_s: seconds between periodic saves, 0 for none. clock: monotonic seconds. can_save: there is a store.
    adapter: for a job that adapts, with the reviser of the pilot's own rank.
    """

    def __init__(
        self,
        control: Control,
        proposed: Proposed,
        progress: Progress,
        every_s: float,
        clock: Callable[[], float],
        can_save: bool,
        adapter: Adapter | None = None,
        reviser: Reviser | None = None,
    ) -> None:
        self.adapter, self._reviser = adapter, reviser
        self._control, self._proposed, self._progress = control, proposed, progress
        self._every_s, self._clock = every_s, clock
        self._can_save = can_save
        self._saved_at = clock()

    def header(self, boundary: int, saving: bool, may_change: bool) -> tuple[Header, int]:
        """For a boundary, with the number of the next generation for CHANGE, of the revision for PREPARE and REVISE.

        boundary: steps finished there. saving: an earlier save is still being written.
        """
        held = self._hold(boundary)
        stop = self._control.stop
        if self.adapter is not None and (stop is not None or self._proposed.known):
            self.adapter.yields()
        if stop is not None:
            return (Header.SAVE_AND_STOP if stop.save and self._can_save else Header.STOP), 0
        generation = self._proposed.ready
        if may_change and held and not saving and generation is not None:
            return Header.CHANGE, generation
        return self._revision(saving, may_change) or (self._save(saving), 0)

    def _revision(self, saving: bool, may_change: bool) -> tuple[Header, int] | None:
        """What the adapter wants, unless a next generation is on its way."""
        if self.adapter is None or self._reviser is None or not may_change or self._proposed.known:
            return None
        found = self.adapter.header(self._reviser, saving)
        if found is None:
            return None
        return (Header.PREPARE if isinstance(found, Prepare) else Header.REVISE), found.revision

    def _save(self, saving: bool) -> Header:
        if not self._can_save or saving:
            return Header.GO
        asked = self._control.target.save_no > self._progress.save_no
        due = self._every_s > 0 and self._clock() - self._saved_at >= self._every_s
        if not asked and not due:
            return Header.GO
        self._progress.save_no = self._control.target.save_no
        self._saved_at = self._clock()
        return Header.SAVE

    def _hold(self, boundary: int) -> bool:
        """Whether a change may come here. A scripted one comes at a fixed step: wait until it is ready, or dropped."""
        hold_at = self._control.target.spec.hold_at
        if boundary not in hold_at:
            return not hold_at
        deadline = self._clock() + self._control.target.spec.start_timeout_s
        seen = False
        while self._control.stop is None and self._proposed.ready is None and self._clock() < deadline:
            seen = seen or self._proposed.known
            if seen and not self._proposed.known:
                break
            self._control.check_peers()
            time.sleep(NAP_S)
        return True
