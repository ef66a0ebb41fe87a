"""TCP sockets that a library opened and hides: they are this process's descriptors all the same."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000),
)
"""A peer whose node vanished counts as lost after 10 s."""


def connected() -> dict[str, int]:
    """Connected TCP sockets of this process: a descriptor of each by the kernel's name for it. Descriptors are given
    out again as soon as another thread has closed them, and one socket may have several."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")
            if not link.startswith("socket:"):
                continue
            if _is_connected(int(name)):
                found.setdefault(link, int(name))
    return found


def _is_connected(descriptor: int) -> bool:
    """Raises OSError where it is not. Without a duplicate, which another thread that looks would take for its own."""
    looked_at = socket.socket(fileno=descriptor)
    try:
        looked_at.getpeername()
        return looked_at.type == socket.SOCK_STREAM and looked_at.family in (socket.AF_INET, socket.AF_INET6)
    finally:
        looked_at.detach()


def connected_since(before: Mapping[str, int]) -> set[int]:
    """Descriptors of those that were not connected when `connected` said this."""
    return {number for name, number in connected().items() if name not in before}


BULK_PRIORITY = 1
"""TC_PRIO_FILLER: the last of pfifo_fast's three bands."""


def lower_priority(descriptors: set[int]) -> None:
    """The kernel sends what other connections have to send before what these have."""
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, BULK_PRIORITY)


class Watcher:
    """Frees every operation that waits on a group as soon as one peer closes its connection.

    gloo reports a lost peer only to operations with that peer; others wait for their whole time-out. The watcher shuts
    duplicates of all the group's sockets down, which wakes them within milliseconds.
    """

    def __init__(self, descriptors: set[int], on_lost: Callable[[], None]) -> None:
        self._sockets = [socket.socket(fileno=os.dup(descriptor)) for descriptor in descriptors]
        for duplicate in self._sockets:
            for level, option, value in KEEPALIVE:
                duplicate.setsockopt(level, option, value)
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._disarmed = False
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="peer-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; peers may hang up from now on."""
        with self._lock:
            self._disarmed = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        for duplicate in self._sockets:
            duplicate.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def shut_down(self) -> None:
        """End the connections: every operation on them, here and at the peers, fails at once."""
        for duplicate in self._sockets:
            with contextlib.suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for duplicate in self._sockets:
            poll.register(duplicate, select.POLLRDHUP)
        poll.poll()
        with self._lock:
            if self._disarmed:
                return
            self.shut_down()
            self._on_lost()
