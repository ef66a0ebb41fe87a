"""A non-blocking socket of frames that carries the latest value: a slow reader skips, and never blocks a writer."""

import collections
import contextlib
import os
import socket

from scheduler.protocol.codec import Unframer, frame
from scheduler.protocol.messages import Message

READ_BYTES = 1 << 16
MOST_DESCRIPTORS = 16


class Channel:
    """One end. `offer` replaces what was offered under the same key and not begun to be sent."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self.descriptors: collections.deque[int] = collections.deque()
        self._unframer = Unframer()
        self._sending = b""
        self._offered: dict[object, Message] = {}

    @property
    def wants_to_write(self) -> bool:
        return bool(self._sending or self._offered)

    def offer(self, key: object, message: Message) -> None:
        self._offered[key] = message
        self.flush()

    def flush(self) -> None:
        """Send as much as goes without waiting. A peer that has gone is noticed by `receive`."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self.wants_to_write:
                if not self._sending:
                    self._sending = frame(self._offered.pop(next(iter(self._offered))))
                self._sending = self._sending[self.end.send(self._sending) :]

    def receive(self) -> list[bytes] | None:
        """Complete messages that have arrived; None when the peer has hung up. Descriptors queue up beside.

        Raises:
            BadMessage: the peer does not speak this protocol.
        """
        bodies: list[bytes] = []
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.end, READ_BYTES, MOST_DESCRIPTORS)
            except BlockingIOError:
                return bodies
            except ConnectionResetError:
                return bodies or None
            self.descriptors.extend(descriptors)
            if not data:
                return bodies or None
            bodies += self._unframer.feed(data)

    def close(self) -> None:
        """What was not sent is dropped: the loop that heard of the end may still want to flush."""
        self._sending, self._offered = b"", {}
        self.end.close()
        while self.descriptors:
            os.close(self.descriptors.popleft())
