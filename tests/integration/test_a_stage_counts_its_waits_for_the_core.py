"""A stage of the calibration's pipeline tells a wait for its core from a wait for its neighbour."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from agent.forest.stage import Line, connected

PATIENCE_S = 60.0
HOG = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    [(one, other)] = connected(1)
    with one, other:
        yield one, other


@pytest.fixture
def core() -> Iterator[int]:
    """A core that this thread, and those which it starts, are bound to."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)


@pytest.fixture
def hog(core: int) -> Iterator[None]:
    """Somebody else who computes there."""
    with subprocess.Popen([sys.executable, "-c", HOG, str(core)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def test_a_receiver_that_gets_its_core_late_is_told_beside_the_message(hog: None, ends: Ends) -> None:
    one, other = ends
    ours, theirs = Line(one), Line(other)
    late_s, deadline = 0.0, time.monotonic() + PATIENCE_S
    while not late_s:
        assert time.monotonic() < deadline, "others computed there, and it never had to wait"
        theirs.send(b"message")
        began_s = time.monotonic()
        data, late_s = ours.take()
        assert data == b"message"
        assert 0 <= late_s <= time.monotonic() - began_s


def test_a_neighbour_that_has_gone_is_told(ends: Ends) -> None:
    one, other = ends
    ours = Line(one)
    other.shutdown(socket.SHUT_RDWR)
    with pytest.raises(EOFError):
        ours.take()
