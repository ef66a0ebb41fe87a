"""From predictions, one every half second, to what others may act on: smoothed, and with a hysteresis."""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from agent.damping import Damping
from scheduler.protocol.slowdown import Slowdown

BEGINS, ENDS = 1.2, 1.1
HELD_S = 5.0
SMOOTHED = 5
FREE_TURNS = 2
"""A neighbour that comes and goes."""


@dataclass(slots=True)
class Contest:
    """Of one device. It is contested once its ratio has been BEGINS or more for HELD_S, until it has been ENDS or less
    for as long; for longer where it has turned often lately, since everybody is told of each turn."""

    contested: bool = False
    since_s: float = math.inf
    damping: Damping = field(default_factory=lambda: Damping(HELD_S, FREE_TURNS))
    newest: deque[Slowdown] = field(default_factory=lambda: deque(maxlen=SMOOTHED))
    told: Slowdown | None = None
    told_s: float = -math.inf

    def take(self, slowdown: Slowdown, now_s: float) -> Slowdown:
        """The middle of the last few, of one source."""
        if self.newest and self.newest[-1].source is not slowdown.source:
            self.newest.clear()
        self.newest.append(slowdown)
        middle = {
            name: statistics.median(getattr(one, name) for one in self.newest)
            for name in ("ratio", "low", "high", "confidence", "stage_ratio", "stage_low")
            if getattr(slowdown, name) is not None
        }
        self._judge(middle["ratio"], now_s)
        self.told, self.told_s = replace(slowdown, contested=self.contested, **middle), now_s
        return self.told

    def lose(self, now_s: float) -> Slowdown | None:
        """Nothing is known of it now. What was known stands for HELD_S: a forest that trusts itself by turns, or a
        reading that is late, is neither a neighbour's end nor a reason to wait for it anew."""
        if now_s - self.told_s < HELD_S:
            return self.told
        self.newest.clear()
        self.since_s, self.told = math.inf, None
        if self.contested:
            self._turn(now_s)
        return None

    def _judge(self, ratio: float, now_s: float) -> None:
        turns = ratio <= ENDS if self.contested else ratio >= BEGINS
        self.since_s = min(self.since_s, now_s) if turns else math.inf
        if now_s - self.since_s >= self.damping.wait_s(now_s):
            self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        self.contested, self.since_s = not self.contested, math.inf
        self.damping.turned(now_s)
