"""The agent's line to the daemon: one DEALER over CURVE, a session an agent start, heartbeats both ways."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import structlog
import zmq
import zmq.asyncio

from scheduler.protocol.codec import MAX_BYTES, BadMessage, decode_to_agent, encode
from scheduler.protocol.messages import Beat, BeatAck, Message, Read, Refused, Secrets, Targets, Welcome
from scheduler.protocol.telemetry import bounded

log = structlog.get_logger()

BEAT_S = 5.0
RETRY_S = 1.0
SILENCE_S = 15.0
COALESCE_S = 0.05


class RefusedByDaemon(Exception):
    """The daemon will not take this agent; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys, Z85: our pair, and the daemon's public key."""

    public: bytes
    secret: bytes
    server: bytes


class Link:
    """Says Hello until welcomed, then beats, sends Reports when there is news, and hands every message on.

    handler: has `hello()`, `reports()`, `applied`, `health`, `telemetry`, `welcome(epoch)`, `take_targets(targets)`,
    `read(read) -> Chunk`, `questions()`, `take_secrets(secrets)`.
    """

    def __init__(self, endpoint: str, keys: Keys | None, session: str, handler: Any) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._session = session
        self._handler = handler
        self._context = zmq.asyncio.Context()
        self._news = asyncio.Event()
        self._heard = 0.0
        self._epoch: int | None = None
        self._ignored: int | None = None
        self._beats = 0

    def news(self) -> None:
        """There is something to report."""
        self._news.set()

    def greet(self) -> None:
        """Say Hello again instead of the next beat: this node has become another."""
        self._epoch = None

    @property
    def settled(self) -> bool:
        """Whether all news has been sent."""
        return not self._news.is_set()

    async def run(self) -> None:
        """For the agent's life: a silent daemon is called again on a fresh socket. Raises RefusedByDaemon."""
        try:
            while True:
                with self._open() as sock:
                    await self._session_on(sock)
        finally:
            self._context.destroy(linger=0)

    def _open(self) -> "zmq.asyncio.Socket":
        sock = self._context.socket(zmq.DEALER)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.SNDHWM, 1000)
        sock.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        if self._keys is not None:
            sock.curve_publickey = self._keys.public
            sock.curve_secretkey = self._keys.secret
            sock.curve_serverkey = self._keys.server
        sock.connect(self._endpoint)
        return sock

    async def _session_on(self, sock: "zmq.asyncio.Socket") -> None:
        """Returns when the daemon has been silent for too long."""
        self._epoch, self._heard = None, asyncio.get_running_loop().time()
        tasks = [asyncio.create_task(work(sock)) for work in (self._receive, self._beat, self._report)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, sock: "zmq.asyncio.Socket", message: Message) -> None:
        with contextlib.suppress(zmq.Again):  # a full queue: the latest whole value is sent again with a later beat
            await sock.send(encode(message), flags=zmq.NOBLOCK)

    async def _beat(self, sock: "zmq.asyncio.Socket") -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - self._heard < SILENCE_S:
            if self._epoch is None:
                await self._send(sock, self._handler.hello())
                await asyncio.sleep(RETRY_S)
                continue
            self._beats += 1
            handler = self._handler
            telemetry = bounded(handler.telemetry) if handler.telemetry is not None else None
            beat = Beat(
                session=self._session, seq=self._beats, applied=handler.applied, health=handler.health,
                telemetry=telemetry,
            )
            await self._send(sock, beat)
            self._news.set()
            await asyncio.sleep(BEAT_S)
        log.warning("daemon silent", seconds=round(loop.time() - self._heard))

    async def _report(self, sock: "zmq.asyncio.Socket") -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(COALESCE_S)
            self._news.clear()
            if self._epoch is not None:
                await self._send(sock, self._handler.reports())
                for question in self._handler.questions():
                    await self._send(sock, question)

    async def _receive(self, sock: "zmq.asyncio.Socket") -> None:
        while True:
            data = await sock.recv()
            try:
                message = decode_to_agent(data)
            except BadMessage as error:
                log.warning("bad message from the daemon", error=str(error))
                continue
            self._heard = asyncio.get_running_loop().time()
            await self._take(sock, message)

    async def _take(self, sock: "zmq.asyncio.Socket", message: Message) -> None:
        match message:
            case Welcome(epoch=epoch):
                if epoch != self._epoch:
                    log.info("welcome", epoch=epoch)
                self._epoch = epoch
                self._handler.welcome(epoch)
                self._news.set()
            case Refused(why=why):
                raise RefusedByDaemon(why)
            case Targets(epoch=epoch) if epoch == self._epoch:
                self._handler.take_targets(message)
            case Targets(epoch=epoch) if epoch != self._ignored:
                self._ignored = epoch
                log.warning("Targets of another daemon's life are ignored", epoch=epoch, present=self._epoch)
            case BeatAck(epoch=epoch, known=known):
                if epoch != self._epoch or not known:  # the daemon has been started anew: tell it everything
                    self._epoch = None
                    await self._send(sock, self._handler.hello())
            case Secrets():
                self._handler.take_secrets(message)
            case Read():
                await self._send(sock, self._handler.read(message))
