"""The daemon's socket for agents: bytes in, checked messages out, with the sender's authenticated key."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.utils.monitor import recv_monitor_message

from scheduler.protocol.codec import MAX_BYTES, BadMessage, decode_from_agent, encode
from scheduler.protocol.messages import FromAgent, Message
from scheduler.transport.keys import AllowedAgents
from scheduler.transport.ports import taken

log = structlog.get_logger()

_WATCHED = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_CUT_OFF = f"it hung up, or was cut off: it spoke no ZeroMQ, or sent more than {MAX_BYTES} bytes at once"

OnMessage = Callable[[bytes, str, FromAgent], None]


class Router:
    """A ROUTER that only knows connections; `Fleet` knows nodes. Routing ids are ZeroMQ's own: nobody can claim one."""

    def __init__(self, endpoint: str, pair: tuple[bytes, bytes], allowed: AllowedAgents) -> None:
        self._context = zmq.asyncio.Context()
        self._auth = AsyncioAuthenticator(self._context)
        self._auth.start()
        self._auth.configure_curve_callback(credentials_provider=allowed)
        sock = self._socket = self._context.socket(zmq.ROUTER)
        sock.curve_publickey, sock.curve_secretkey = pair
        sock.curve_server = True
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
        sock.setsockopt(zmq.SNDHWM, 1000)
        sock.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        taken(partial(sock.bind, endpoint), endpoint)
        self.endpoint: str = sock.getsockopt_string(zmq.LAST_ENDPOINT)
        self._monitor = sock.get_monitor_socket(_WATCHED)

    async def run(self, on_message: OnMessage) -> None:
        """Hand on every good message; log a bad one once and go on."""
        watching = asyncio.create_task(self._watch_peers())
        try:
            await self._receive(on_message)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch_peers(self) -> None:
        """libzmq says nothing of those whom it cuts off: one line for each connection that ends."""
        why = ""
        while True:
            event = await recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_DISCONNECTED:
                log.warning("a connection to the agents' port ended", why=why or _CUT_OFF)
                why = ""
            else:
                why = "its handshake failed: it has no CURVE, or not this daemon's key"

    async def _receive(self, on_message: OnMessage) -> None:
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            try:
                route, body = frames[0].bytes, frames[-1]
                key = str(body.get("User-Id"))
                on_message(route, key, decode_from_agent(body.bytes))
            except BadMessage as error:
                log.warning("bad message from an agent", error=str(error)[:200])
            except Exception:
                log.exception("message handler failed")

    def send(self, route: bytes, message: Message) -> bool:
        """False when the peer is away or its queue is full: the latest whole value is sent again later."""
        try:
            future = asyncio.ensure_future(self._socket.send_multipart([route, encode(message)], flags=zmq.NOBLOCK))
        except zmq.ZMQError:
            return False
        future.add_done_callback(_swallow)
        return True

    def close(self) -> None:
        self._auth.stop()
        self._socket.disable_monitor()
        self._context.destroy(linger=0)


def _swallow(future: "asyncio.Future[Any]") -> None:
    """A peer that went away in between is no error: its silence is noticed elsewhere."""
    if not future.cancelled():
        future.exception()
