"""The shim's end of its agent's line: one agent at a time, a newer one replaces the older, none changes nothing."""

import contextlib
import os
import selectors
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from scheduler.protocol.codec import BadMessage, decode_to_shim
from scheduler.protocol.messages import Report, ShimHello, Slowdowns, Spawn, Target
from worker.channel import Channel


class AgentLine:
    """Listens on shim.sock in the attempt's folder. channel: to the present agent. hung_up: the last one has gone."""

    def __init__(self, folder: Path, directory: int, selector: selectors.BaseSelector, hello: ShimHello) -> None:
        """directory: descriptor of the folder; a Unix socket's own path may have 107 bytes only."""
        self._file, self._selector, self._hello = folder / "shim.sock", selector, hello
        self.channel: Channel | None = None
        self.hung_up = False
        self._told: dict[int, Report] = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = f"/proc/self/fd/{directory}/{self._file.name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        mask = os.umask(0o177)
        try:
            self.listener.bind(path)
        finally:
            os.umask(mask)
        self.listener.listen(8)
        self.listener.setblocking(False)
        selector.register(self.listener, selectors.EVENT_READ)

    def welcome(self, members: Iterable[int]) -> None:
        """A new agent replaces the old one, hears who this is, and then everything that is so. What the old one has
        sent and nobody has read is lost: `members` tells the new one what was not."""
        with contextlib.suppress(BlockingIOError):
            end, _ = self.listener.accept()
            self._drop()
            self.hung_up = False
            self.channel = Channel(end)
            self._selector.register(end, selectors.EVENT_READ)
            self.channel.offer("hello", replace(self._hello, members=tuple(members)))
            self._told = {}

    def messages(self) -> Iterator[tuple[Spawn | Target | Slowdowns, int]]:
        """What the agent has said, a Spawn with its log's descriptor. One that speaks something else is dropped."""
        assert self.channel is not None
        channel = self.channel
        try:
            bodies = channel.receive()
            for body in bodies or []:
                message = decode_to_shim(body)
                yield message, channel.descriptors.popleft() if isinstance(message, Spawn) else -1
        except (BadMessage, IndexError) as error:
            print(f"shim: the agent does not speak this protocol: {error}", file=sys.stderr, flush=True)
            bodies = None
        if bodies is None:
            self._drop()

    def tell(self, reports: Mapping[int, Report]) -> None:
        """Whatever the agent has not been told yet."""
        for member, report in reports.items():
            if self.channel is not None and self._told.get(member) is not report:
                self._told[member] = report
                self.channel.offer(member, report)

    def close(self) -> None:
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file)

    def _drop(self) -> None:
        if self.channel is not None:
            self._selector.unregister(self.channel.end)
            self.channel.close()
            self.channel = None
            self.hung_up = True
