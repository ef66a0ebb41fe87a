"""The pilot's decisions: replica 0 of the last stage owns every change inside the running job."""

import time
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from worker.adapt.adapter import Adapter
from worker.adapt.loop import Prepare
from worker.adapt.part import Part
from worker.control import Control
from worker.progress import Progress

NAP_S = 0.002


class Header(IntEnum):
    """What all ranks do at the coming step boundary. It rides on the step's all-reduce, so all know it at once.

    CARRY: the next step takes layers to where the next generation wants them; the change comes after it. PREPARE: every
    rank looks at the next revision's plan. MOVE and REVISE are to a revision what CARRY and CHANGE are to a generation.
    """

    GO = 0
    SAVE = 1
    SAVE_AND_STOP = 2
    STOP = 3
    CHANGE = 4
    CARRY = 5
    PREPARE = 6
    MOVE = 7
    REVISE = 8

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
    """Decides the header. One slot: stop, then the next generation, then a revision of this one, then a save that was
    asked for or is due.

    every_s: seconds between periodic saves, 0 for none. clock: monotonic seconds. can_save: there is a store.
    part: for a job that adapts, the pilot's own, with the adapter.
    """

    def __init__(
        self,
        control: Control,
        proposed: Proposed,
        progress: Progress,
        every_s: float,
        clock: Callable[[], float],
        can_save: bool,
        part: Part | None = None,
    ) -> None:
        self._part = part
        self._control, self._proposed, self._progress = control, proposed, progress
        self._every_s, self._clock = every_s, clock
        self._can_save = can_save
        self._saved_at = clock()
        self._carried: int | None = None
        self._moving: int | None = None

    def header(self, boundary: int, saving: bool, left: int) -> tuple[Header, int]:
        """For a boundary, with the number of the next generation for CHANGE and CARRY, of the next revision for
        PREPARE, MOVE and REVISE, else 0.

        boundary: steps finished there. saving: an earlier save is still being written. left: steps to come, 0 within
        an evaluation.
        """
        if left:
            self._hold(boundary)
        stop = self._control.stop
        if self._adapter is not None and (stop is not None or self._proposed.known):
            self._adapter.yields()
        if stop is not None:
            return (Header.SAVE_AND_STOP if stop.save and self._can_save else Header.STOP), 0
        found = self._revision() or self._change(boundary, saving, left) or self._adapt(saving, left) if left else None
        on_the_way = self._carried is not None or self._moving is not None
        return found or (self._save(saving or on_the_way), 0)

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

    @property
    def _adapter(self) -> Adapter | None:
        return self._part.adapter if self._part is not None else None

    def stays(self) -> None:
        """The layers of a revision could not be moved: there will be none."""
        self._moving = None

    def _revision(self) -> tuple[Header, int] | None:
        """Whose layers have come during this step."""
        moving, self._moving = self._moving, None
        return (Header.REVISE, moving) if moving is not None else None

    def _adapt(self, saving: bool, left: int) -> tuple[Header, int] | None:
        """What the adapter wants, unless a next generation is on its way."""
        if self._adapter is None or self._part is None or self._proposed.known:
            return None
        found = self._adapter.header(self._part.reviser, saving or left < 2)
        if found is None:
            return None
        if isinstance(found, Prepare):
            return Header.PREPARE, found.revision
        if not self._part.reviser.carries(found.revision):
            return Header.REVISE, found.revision
        self._moving = found.revision
        return Header.MOVE, found.revision

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
