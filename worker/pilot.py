"""The pilot's decisions: replica 0 of the last stage owns every change inside the running job."""

import time
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from worker.control import Control
from worker.progress import Progress

NAP_S = 0.002


class Header(IntEnum):
    """What all ranks do at the coming step boundary. It rides on the step's all-reduce, so all know it at once.

    CARRY: the next step takes layers to where the next generation wants them; the change comes after it.
    """

    GO = 0
    SAVE = 1
    SAVE_AND_STOP = 2
    STOP = 3
    CHANGE = 4
    CARRY = 5

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

    @property
    def carries(self) -> bool:
        """Layers go between members that train now, which they can do beside a step."""


class Pilot:
    """Decides the header. One slot: stop, then the next generation, then a save that was asked for or is due.

    every_s: seconds between periodic saves, 0 for none. clock: monotonic seconds. can_save: there is a store.
    """

    def __init__(
        self,
        control: Control,
        proposed: Proposed,
        progress: Progress,
        every_s: float,
        clock: Callable[[], float],
        can_save: bool,
    ) -> None:
        self._control, self._proposed, self._progress = control, proposed, progress
        self._every_s, self._clock = every_s, clock
        self._can_save = can_save
        self._saved_at = clock()
        self._carried: int | None = None

    def header(self, boundary: int, saving: bool, left: int) -> tuple[Header, int]:
        """For a boundary, with the number of the next generation for CHANGE and CARRY, else 0.

        boundary: steps finished there. saving: an earlier save is still being written. left: steps to come, 0 within
        an evaluation.
        """
        if left:
            self._hold(boundary)
        stop = self._control.stop
        if stop is not None:
            return (Header.SAVE_AND_STOP if stop.save and self._can_save else Header.STOP), 0
        found = self._change(boundary, saving, left) if left else None
        return found or (self._save(saving or self._carried is not None), 0)

    def _change(self, boundary: int, saving: bool, left: int) -> tuple[Header, int] | None:
        carried, self._carried = self._carried, None
        generation, hold_at = self._proposed.ready, self._control.target.spec.hold_at
        if generation is None:
            return None
        if carried is not None:
            return (Header.CHANGE, generation) if generation == carried else None
        if saving:
            return None
        at_hand = boundary not in hold_at and (not hold_at or boundary + 1 in hold_at)
        if self._proposed.carries and left > 1 and at_hand:
            self._carried = generation
            return Header.CARRY, generation
        return (Header.CHANGE, generation) if not hold_at or boundary in hold_at else None

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

    def _hold(self, boundary: int) -> None:
        """A scripted change comes at a fixed step: wait until it is ready, a step ahead so that it can be carried."""
        hold_at = self._control.target.spec.hold_at
        if self._carried is not None or not {boundary, boundary + 1} & set(hold_at):
            return
        deadline = self._clock() + self._control.target.spec.start_timeout_s
        seen = False
        while self._control.stop is None and self._proposed.ready is None and self._clock() < deadline:
            seen = seen or self._proposed.known
            if seen and not self._proposed.known:
                break
            self._control.check_peers()
            time.sleep(NAP_S)
