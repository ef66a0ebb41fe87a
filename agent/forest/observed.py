"""Slowdowns as running jobs show them: step times over those of the same plan when it was not disturbed."""

import statistics
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.forest.contested import BEGINS
from scheduler.protocol.messages import Report, Target
from scheduler.protocol.plausible import plausible

CALM, NEWEST = 10, 5
KEPT = 256


class Ratio(NamedTuple):
    """Newest step times over undisturbed ones: their median, and the range that they are in."""

    middle: float
    low: float
    high: float


@dataclass(slots=True)
class Pace:
    """Of one plan of one program, at one batch size. free_s: the smallest median that CALM step times in a row have
    had: a single quick step is luck, ten in a row are not. It never grows, so that a long disturbance does not
    become the normal. beside: a neighbour was there when it began, as where a pilot has made the plan for it; then
    it tells nothing until that is over, which is when steps are that much shorter than first_s."""

    beside: bool = False
    first_s: float | None = None
    free_s: float | None = None
    step_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=CALM))
    step: int = -1

    def add(self, step: int, step_time_s: float) -> None:
        if step == self.step or step_time_s <= 0:
            return
        if step < self.step:  # another attempt
            self.step_times_s.clear()
        self.step = step
        self.step_times_s.append(step_time_s)
        if len(self.step_times_s) == CALM:
            middle = statistics.median(self.step_times_s)
            self.first_s = self.first_s or middle
            self.free_s = middle if self.free_s is None else min(self.free_s, middle)

    def ratio(self) -> Ratio | None:
        """None before there are enough."""
        newest = sorted(list(self.step_times_s)[-NEWEST:])
        if self.free_s is None or self.first_s is None or len(newest) < NEWEST:
            return None
        if self.beside and self.free_s * BEGINS > self.first_s:
            return None
        low, middle, high = (max(1.0, newest[at] / self.free_s) for at in (0, NEWEST // 2, -1))
        return Ratio(middle, low, high)


class Observed:
    """The pace of each gang whose pilot is here. Paces outlive attempts: one that begins beside a neighbour has the
    baseline of an earlier one, if there was any in the same place: as many members here, on the same kinds of devices.
    """

    def __init__(self) -> None:
        self._paces: dict[Hashable, Pace] = {}
        self._slowed: dict[tuple[int, int], set[str]] = {}
        """The devices here of each attempt that was slow when it last told."""

    def take(
        self, members: Sequence[tuple[Target, Report]], kinds: Mapping[str, str] | None = None
    ) -> dict[tuple[int, int], Ratio]:
        """By job and attempt, of those that have shown enough. members: all that are here. kinds: of their devices."""
        devices: dict[tuple[int, int], set[str]] = defaultdict(set)
        for target, _ in members:
            devices[target.job, target.attempt].add(target.device)
        found = {}
        for target, told in members:
            report = plausible(told)
            if report.step is None or report.step_time_s is None:
                continue
            attempt = target.job, target.attempt
            place = len(target.ranks), tuple(sorted((kinds or {}).get(device, "") for device in devices[attempt]))
            key = target.spec.spec_key or target.job, report.plan or target.plan, report.batch, place
            pace = self._paces.pop(key, None) or Pace(beside=self._slowed.get(attempt) == devices[attempt])
            self._paces[key] = pace  # the last used is the last to go
            pace.add(report.step, report.step_time_s)
            if (ratio := pace.ratio()) is not None:
                found[attempt] = ratio
                self._slowed.pop(attempt, None)
                if ratio.middle >= BEGINS:
                    self._slowed[attempt] = devices[attempt]
        self._slowed = {attempt: where for attempt, where in self._slowed.items() if attempt in devices}
        while len(self._paces) > KEPT:
            del self._paces[next(iter(self._paces))]
        return found
