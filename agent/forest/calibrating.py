"""Whether a calibration runs on this machine: what it does to jobs then is no data about them, and it owns the models.

It is known by a socket of an abstract name, which ends with its process whatever happens, and needs no folder that both
would have to know.
"""

import contextlib
import socket
from collections.abc import Iterator

NAME = "\0jct-agent calibrate"


@contextlib.contextmanager
def calibration(name: str = NAME) -> Iterator[bool]:
    """While it runs. False: another one does, too, on this machine."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        try:
            mark.bind(name)
        except OSError:
            yield False
        else:
            yield True


def runs_here(name: str = NAME) -> bool:
    """On this machine, whoever has started it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(name)
        except OSError:
            return False
    return True
