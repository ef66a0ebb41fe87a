"""Work that may hang runs on a thread of its own, and nobody ever waits for it longer than he wants to."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Watched(Generic[_T]):
    """One function, run when asked, on a daemon thread: one that hangs keeps no process from ending.

    newest: what the last run returned, None before the first has ended; newest_at: when that was.
    """

    def __init__(self, work: Callable[[], _T], name: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """work must not raise."""
        self._work, self._name, self._clock_s = work, name, clock_s
        self._wanted, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._since = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        self.newest: _T | None = None
        self.newest_at = 0.0

    def ask(self) -> bool:
        """Begin a run, unless one is still going on."""
        if not self._idle.is_set():
            return False
        self._since = self._clock_s()
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._wanted.set()
        return True

    def busy_s(self) -> float:
        """For how long the present run has been going on; 0 where there is none."""
        return 0.0 if self._idle.is_set() else self._clock_s() - self._since

    def wait(self, timeout_s: float) -> bool:
        """Until the present run has ended; False where it has not in time."""
        return self._idle.wait(timeout_s)

    def close(self) -> None:
        """The thread ends, once its present run has."""
        self._closed = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            self.newest = self._work()
            self.newest_at = self._clock_s()
            self._idle.set()
