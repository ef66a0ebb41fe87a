"""What turns to and fro is believed ever more slowly, so that it is not told ever again."""

from collections import deque

LATELY_S, LONGEST_S = 600.0, 300.0
KEPT = 16


class Damping:
    """How long the next turn has to wait. The first `free` turns within LATELY_S wait base_s; each further one waits
    twice as long as the one before, LONGEST_S at most."""

    def __init__(self, base_s: float, free: int) -> None:
        self._base_s, self._free = base_s, free
        self._turned_s: deque[float] = deque(maxlen=KEPT)

    def turned(self, now_s: float) -> None:
        self._turned_s.append(now_s)

    def wait_s(self, now_s: float) -> float:
        lately = sum(now_s - at_s < LATELY_S for at_s in self._turned_s)
        return min(max(LONGEST_S, self._base_s), self._base_s * 2.0 ** max(0, lately - self._free))
