"""Whoever is not an allowed agent, or does not speak as one, is turned away with one line in the log."""

import asyncio
import contextlib
import pickle
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
import structlog
import zmq
import zmq.asyncio
from test_agents_over_zeromq import PATIENCE_S, Site, ask, hello, run

from agent.link import Link
from scheduler.protocol.codec import MAX_BYTES, BadMessage, Unframer, encode
from scheduler.protocol.messages import (
    Beat,
    BeatAck,
    Hello,
    NeedSecrets,
    Phase,
    Report,
    Reports,
    Secrets,
    Targets,
    Welcome,
)


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


GREETING = b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\0" * 32
ONE_GB = 2**30


def test_b53_a_frame_that_declares_a_gigabyte_is_cut_off_before_anything_is_allocated(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        port = int(site.router.endpoint.rpartition(":")[2])
        peak = peak_bytes()
        with structlog.testing.capture_logs() as lines, socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(GREETING)
            stranger.sendall(b"\x06" + ONE_GB.to_bytes(8, "big") + b"\x05HELLO")  # a long command
            [line] = await until(lines, "connection to the agents' port ended")
            assert line["why"]
            stranger.settimeout(PATIENCE_S)
            while stranger.recv(4096):  # its own greeting, then the end
                pass
        assert peak_bytes() - peak < ONE_GB // 10
        await ask(site.agent(context, "n1"), hello("n1"), Welcome)

    run(scene, tmp_path)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_b53_a_frame_of_a_stream_that_declares_a_gigabyte_is_refused_by_its_header() -> None:
    peak = peak_bytes()
    with pytest.raises(BadMessage, match=str(ONE_GB)):
        Unframer().feed(ONE_GB.to_bytes(4, "big") + b"x")
    assert peak_bytes() - peak < ONE_GB // 10


def test_a_recorded_session_that_is_played_again_changes_nothing_and_gets_one_line(tmp_path: Path) -> None:
    """Over CURVE nobody else can: this is an agent with an old copy of itself."""

    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        gone = Report(job=1, attempt=1, member=0, seq=5, phase=Phase.GONE)
        recorded = [
            Reports(session="s1", seq=1, applied=1, reports=(gone,)), Beat(session="s1", seq=9, applied=9),
            NeedSecrets(session="s1", job=1, attempt=1),
        ]  # fmt: skip
        await ask(sock, hello("n1", session="s1"), Welcome)
        await ask(sock, hello("n1", session="s2"), Welcome)
        before = len(site.events)
        with structlog.testing.capture_logs() as lines:
            for message in recorded * 3:
                await sock.send(encode(message))
            assert (await ask(sock, Beat(session="s2", seq=1, applied=0), BeatAck)).known is False
            while not (answer := await ask(sock, Beat(session="s2", seq=2, applied=0), BeatAck)).known:
                pass
            assert answer.session == "s2"
        assert [line["session"] for line in lines if "no present session" in line["event"]] == ["s1"]
        assert {event.session for event in site.events[before:]} == {"s2"}

    run(scene, tmp_path)


class Handler:
    """An agent's mind that only remembers."""

    applied, health = 0, None

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []

    def hello(self) -> Hello:
        return hello("n1")

    def reports(self) -> Reports:
        return Reports(session="s1", seq=1, applied=0, reports=())

    def questions(self) -> list[NeedSecrets]:
        return []

    def welcome(self, epoch: int) -> None:
        pass

    def take_targets(self, targets: Targets) -> None:
        self.taken.append((targets.epoch, targets.version))


def test_targets_of_an_earlier_daemon_are_ignored_with_one_line() -> None:
    async def scene() -> None:
        context, handler = zmq.asyncio.Context(), Handler()
        daemon = context.socket(zmq.ROUTER)
        port = daemon.bind_to_random_port("tcp://127.0.0.1")
        link = asyncio.create_task(Link(f"tcp://127.0.0.1:{port}", None, "s1", handler).run())
        route, _ = await asyncio.wait_for(daemon.recv_multipart(), PATIENCE_S)
        with structlog.testing.capture_logs() as lines:
            await daemon.send_multipart([route, encode(Welcome(epoch=7, session="s1"))])
            for epoch, version in ((6, 3), (6, 4), (7, 1), (6, 5), (7, 2)):
                targets = Targets(epoch=epoch, session="s1", version=version, targets=())
                await daemon.send_multipart([route, encode(targets)])
            while len(handler.taken) < 2:
                await asyncio.sleep(0.01)
        assert handler.taken == [(7, 1), (7, 2)]
        assert [line["epoch"] for line in lines if "another daemon's life" in line["event"]] == [6]
        link.cancel()
        await asyncio.gather(link, return_exceptions=True)
        context.destroy(linger=0)

    asyncio.run(scene())
