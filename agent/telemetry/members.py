"""What our own members use of the processors, and how long they wait for them: from /proc, of all their threads."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Thread = tuple[int, int]
Counts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class OwnUse:
    """Of the members on one device. busy_percent: of one core. wait_percent: of the time in which they could have run,
    the part in which they did not, as others ran. timeslices_per_s: how often they were put on a core."""

    busy_percent: float
    wait_percent: float
    timeslices_per_s: float


NOBODY = OwnUse(0.0, 0.0, 0.0)


class Members:
    """Compares each look with the one before."""

    def __init__(self, proc: Path = Path("/proc"), clock_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock_s = proc, clock_s
        self._before: dict[Thread, Counts] = {}
        self._looked_s: float | None = None

    def read(self, pids: Mapping[str, int | None]) -> dict[str, OwnUse | None]:
        """pids: of the member on each device; None where there is one whose pid is not known. None where it cannot be
        seen, or is looked at for the first time."""
        now_s = self._clock_s()
        passed_s = now_s - self._looked_s if self._looked_s is not None else 0.0
        before, self._looked_s = self._before, now_s
        self._before = {}
        found: dict[str, OwnUse | None] = {}
        for device, pid in pids.items():
            counts = dict(self._threads(pid)) if pid is not None else {}
            self._before |= counts
            found[device] = _use(before, counts, passed_s)
        return found

    def _threads(self, pid: int) -> Iterator[tuple[Thread, Counts]]:
        """Of the process and all below it: nanoseconds run, nanoseconds waited while it could run, timeslices."""
        tasks = self._proc / str(pid) / "task"
        try:
            names = [path.name for path in tasks.iterdir()]
        except OSError:
            return
        for name in names:
            try:
                ran, waited, slices = map(int, (tasks / name / "schedstat").read_text().split())
            except (OSError, ValueError):  # it has just ended, or this kernel counts no such thing
                continue
            yield (pid, int(name)), (ran, waited, slices)
            for child in self._children(tasks / name):
                yield from self._threads(child)

    def _children(self, task: Path) -> list[int]:
        """None where this kernel does not list them."""
        try:
            return list(map(int, (task / "children").read_text().split()))
        except (OSError, ValueError):
            return []


def _use(before: Mapping[Thread, Counts], now: Mapping[Thread, Counts], passed_s: float) -> OwnUse | None:
    """A thread that is new counts from now on."""
    both = [(before[thread], now[thread]) for thread in now if thread in before]
    if not both or passed_s <= 0:
        return None
    ran, waited, slices = (sum(new[at] - old[at] for old, new in both) for at in range(3))
    return OwnUse(
        busy_percent=100 * ran / 1e9 / passed_s, wait_percent=100 * waited / (ran + waited) if ran + waited else 0.0,
        timeslices_per_s=slices / passed_s,
    )  # fmt: skip
