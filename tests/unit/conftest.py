"""What several unit tests begin with."""

import os
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def child() -> Iterator[int]:
    """A process that does nothing until it is killed."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
