"""The pilot's decisions: replica 0 of the last stage owns every change inside the running job."""

from collections.abc import Callable
from enum import IntEnum

from worker.control import Control


class Header(IntEnum):
    """What all ranks do at the coming step boundary. It rides on the step's all-reduce, so all know it at once."""

    GO = 0
    SAVE = 1
    SAVE_AND_STOP = 2
    STOP = 3

    @property
    def saves(self) -> bool:
        return self in (Header.SAVE, Header.SAVE_AND_STOP)

    @property
    def stops(self) -> bool:
        return self in (Header.SAVE_AND_STOP, Header.STOP)


class Pilot:
    """Decides the header. One slot: stop beats a save that was asked for, that beats a periodic one.

    every_s: seconds between periodic saves, 0 for none. clock: monotonic seconds. can_save: there is a store.
    """

    def __init__(self, control: Control, every_s: float, clock: Callable[[], float], can_save: bool) -> None:
        self._control, self._every_s, self._clock, self._can_save = control, every_s, clock, can_save
        self._saved_at = clock()
        self._save_no = control.target.save_no

    def header(self, saving: bool) -> Header:
        """For the boundary after the running step. saving: an earlier save is still being written."""
        stop = self._control.stop
        if stop is not None:
            return Header.SAVE_AND_STOP if stop.save and self._can_save else Header.STOP
        if not self._can_save or saving:
            return Header.GO
        asked = self._control.target.save_no > self._save_no
        due = self._every_s > 0 and self._clock() - self._saved_at >= self._every_s
        if not asked and not due:
            return Header.GO
        self._save_no = self._control.target.save_no
        self._saved_at = self._clock()
        return Header.SAVE
