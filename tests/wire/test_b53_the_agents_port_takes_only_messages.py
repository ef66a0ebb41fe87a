"""Whoever is not an allowed agent, or does not speak as one, is turned away with one line in the log."""

import asyncio
import contextlib
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import structlog
import zmq
import zmq.asyncio
from test_agents_over_zeromq import PATIENCE_S, Site, ask, hello, run

from scheduler.protocol.codec import MAX_BYTES, encode
from scheduler.protocol.messages import Beat, BeatAck, NeedSecrets, Secrets, Welcome


async def until(lines: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The lines that say so, once there is one."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := [line for line in lines if text in line["event"]]):
        assert asyncio.get_running_loop().time() < deadline, lines
        await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", pickle.dumps({"a": 1}), b"\xff" + b"\0" * 80])
def test_strangers_that_speak_no_zeromq_get_one_line(tmp_path: Path, data: bytes) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        port = int(site.router.endpoint.rpartition(":")[2])
        with structlog.testing.capture_logs() as lines, socket.create_connection(("127.0.0.1", port)) as stranger:
            with contextlib.suppress(OSError):  # it may be cut off before it has hung up
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
            [line] = await until(lines, "connection to the agents' port ended")
            assert "it spoke no ZeroMQ" in line["why"]
        await ask(site.agent(context, "n1"), hello("n1"), Welcome)

    run(scene, tmp_path)


def test_a_peer_without_curve_or_with_another_key_gets_one_line(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        plain = context.socket(zmq.DEALER)
        plain.setsockopt(zmq.RECONNECT_IVL, -1)
        with structlog.testing.capture_logs() as lines:
            plain.connect(site.router.endpoint)
            await plain.send(encode(hello("n1")))
            [line] = await until(lines, "connection to the agents' port ended")
            assert "no CURVE" in line["why"]
        with structlog.testing.capture_logs() as lines:
            stranger = site.agent(context, "stranger", allowed=False)
            await stranger.send(encode(hello("n1")))
            [first, *_] = await until(lines, "unknown key")
            assert first["key"]
        assert site.events == []
        plain.close(linger=0)
        stranger.close(linger=0)

    run(scene, tmp_path)


def test_a_frame_beyond_the_limit_ends_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock, other = site.agent(context, "n1"), site.agent(context, "n2")
        await ask(other, hello("n2"), Welcome)
        await sock.send(b"x" * (MAX_BYTES + 100))
        assert (await ask(other, Beat(session="s1", seq=1, applied=0), BeatAck)).known
        await ask(sock, hello("n1"), Welcome)  # the connection is made anew

    run(scene, tmp_path)


def test_secrets_go_only_to_a_node_that_has_a_member_of_the_attempt(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        await ask(sock, hello("n1"), Welcome)
        await sock.send(encode(NeedSecrets(session="s1", job=1, attempt=1)))
        answer = await ask(sock, Beat(session="s1", seq=1, applied=0), BeatAck)
        assert not isinstance(answer, Secrets)  # the beat was answered; the question before it was not

    run(scene, tmp_path)
