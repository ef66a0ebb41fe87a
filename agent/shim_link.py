"""The agent's end of one shim's socket. Contract: the docstring of `worker/shim.py`."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from scheduler.protocol.codec import BadMessage, Unframer, decode_from_shim, frame
from scheduler.protocol.messages import Report, ShimHello, Slowdowns, Spawn, Target

CONNECT_EVERY_S = 0.05


class ShimLink:
    """Connects when the socket appears, sends in order, and tells of every Report until the shim hangs up."""

    def __init__(
        self, folder: Path, nonce: str, on_hello: Callable[[ShimHello], None], on_report: Callable[[Report], None]
    ) -> None:
        self._folder = folder
        self._on_hello = on_hello
        self._nonce = nonce
        self._on_report = on_report
        self._outbox: asyncio.Queue[tuple[bytes, int | None]] = asyncio.Queue()
        self._sock: socket.socket | None = None
        self.greeted = False

    def hang_up(self) -> None:
        """All has been heard: a shim that waits for its reader may go."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def spawn(self, target: Target, log: int, secrets: dict[str, str]) -> None:
        """The descriptor is closed here once it has been sent."""
        self._outbox.put_nowait((frame(Spawn(target=target, secrets=secrets)), log))

    def deliver(self, target: Target) -> None:
        self._outbox.put_nowait((frame(target), None))

    def tell(self, slowdowns: Slowdowns) -> None:
        """Dropped where the shim does not listen just now: newer ones will come."""
        if self.greeted and self._outbox.empty():
            self._outbox.put_nowait((frame(slowdowns), None))

    def drop_unsent(self) -> None:
        """Forget what was not sent yet, so that nothing is started any more."""
        while not self._outbox.empty():
            _, log = self._outbox.get_nowait()
            if log is not None:
                os.close(log)

    async def run(self, alive: Callable[[], bool]) -> None:
        """Until the shim hangs up, or is found dead before it ever listened."""
        sock = await self._connect(alive)
        if sock is None:
            return
        self._sock = sock
        sending = asyncio.create_task(self._send(sock))
        try:
            await self._receive(sock)
        finally:
            self._sock = None
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
            sock.close()
            self.drop_unsent()

    async def _connect(self, alive: Callable[[], bool]) -> socket.socket | None:
        while alive():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
                try:
                    sock.connect(f"/proc/self/fd/{folder}/shim.sock")
                finally:
                    os.close(folder)
                sock.setblocking(False)
                return sock
            except OSError:
                sock.close()
                await asyncio.sleep(CONNECT_EVERY_S)
        return None

    async def _send(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, log = await self._outbox.get()
            if log is not None:
                try:
                    sent = socket.send_fds(sock, [data[:1]], [log])
                finally:
                    os.close(log)
                data = data[sent:]
            await loop.sock_sendall(sock, data)

    async def _receive(self, sock: socket.socket) -> None:
        loop, unframer = asyncio.get_running_loop(), Unframer()
        while True:
            try:
                data = await loop.sock_recv(sock, 65536)
            except OSError:
                return
            if not data:
                return
            for body in unframer.feed(data):
                self._take(decode_from_shim(body))

    def _take(self, message: ShimHello | Report) -> None:
        if isinstance(message, ShimHello):
            if message.nonce != self._nonce:
                raise BadMessage("another attempt's shim answered on this folder's socket")
            self.greeted = True
            self._on_hello(message)
        else:
            self._on_report(message)
