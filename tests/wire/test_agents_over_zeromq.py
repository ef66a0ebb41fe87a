"""The daemon's socket: only known keys are heard, garbage does no harm, and a restarted agent is back at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import zmq
import zmq.asyncio

from scheduler.core.errors import JctError
from scheduler.core.events import NodeHello
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.protocol.codec import decode_to_agent, encode
from scheduler.protocol.messages import (
    Beat,
    BeatAck,
    Chunk,
    DeviceInfo,
    Hello,
    Message,
    Read,
    Refused,
    Targets,
    Welcome,
)
from scheduler.protocol.plausible import MOST, MOST_SMALL
from scheduler.protocol.telemetry import DeviceSample, Process, Telemetry
from scheduler.transport.fleet import Fleet
from scheduler.transport.keys import AllowedAgents, allow_agent, own_pair
from scheduler.transport.router import Router

PATIENCE_S = 10.0


class Site:
    """A daemon's socket with a core that takes events at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Any] = []
        self.state = State(epoch=7)
        self.router = Router("tcp://127.0.0.1:*", own_pair(folder, "daemon"), AllowedAgents(folder / "agents"))
        self.fleet = Fleet(self.router, self.state, CoreSettings(), self._post, lambda: 0.0, lambda job: {})

    def _post(self, event: Any) -> None:
        self.events.append(event)
        effects = step(self.state, event, 1, CoreSettings())
        self.fleet.after_commit(effects.refusals, effects.rows)

    def agent(self, context: zmq.asyncio.Context, node: str, allowed: bool = True) -> zmq.asyncio.Socket:
        mine = self.folder / node
        if allowed:
            allow_agent(self.folder, mine, node)
        sock = context.socket(zmq.DEALER)
        sock.setsockopt(zmq.LINGER, 0)
        sock.curve_publickey, sock.curve_secretkey = own_pair(mine, "agent")
        sock.curve_serverkey = own_pair(self.folder, "daemon")[0]
        sock.connect(self.router.endpoint)
        return sock


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Site, zmq.asyncio.Context]]:
    site, context = Site(folder), zmq.asyncio.Context()
    task = asyncio.create_task(site.router.run(site.fleet.take))
    try:
        yield site, context
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        context.destroy(linger=0)
        site.router.close()


def hello(node: str, session: str = "s1", **changes: Any) -> Hello:
    fields = {"machine": f"m-{node}", "boot": "b", "address": "127.0.0.1", "devices": ()} | changes
    return Hello(node=node, session=session, **fields)


async def ask(sock: zmq.asyncio.Socket, message: Message, kind: type[Message]) -> Any:
    """Send, and wait for an answer of this kind."""
    await sock.send(encode(message))
    while True:
        answer = decode_to_agent(await asyncio.wait_for(sock.recv(), PATIENCE_S))
        if isinstance(answer, kind):
            return answer


def run(scene: Callable[..., Any], folder: Path) -> None:
    async def play() -> None:
        async with running(folder) as (site, context):
            await scene(site, context)

    asyncio.run(play())


def test_a_known_agent_is_welcomed_and_gets_its_targets(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        welcome = await ask(sock, hello("n1"), Welcome)
        assert (welcome.epoch, welcome.session) == (7, "s1")
        answer = await ask(sock, Beat(session="s1", seq=1, applied=0), BeatAck)
        assert answer.known

    run(scene, tmp_path)


def test_targets_are_sent_again_until_they_are_applied(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        targets = await ask(sock, hello("n1"), Targets)
        site.fleet._clock_s = lambda: 100.0
        again = await ask(sock, Beat(session="s1", seq=1, applied=0), Targets)
        assert again == targets
        site.fleet._clock_s = lambda: 200.0
        await ask(sock, Beat(session="s1", seq=2, applied=targets.version), BeatAck)

    run(scene, tmp_path)


def test_an_agent_that_says_hello_again_gets_targets_that_are_newer_than_what_it_has(tmp_path: Path) -> None:
    """B10, B12: else it would take them for late ones, and a node that was lost for a while would stop nothing."""

    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        versions = [(await ask(sock, hello("n1"), Targets)).version for _ in range(3)]
        assert versions == sorted(set(versions))

    run(scene, tmp_path)


def test_an_unknown_key_is_not_heard_at_all(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        stranger = site.agent(context, "stranger", allowed=False)
        await stranger.send(encode(hello("n1")))
        await ask(site.agent(context, "n1"), hello("n1"), Welcome)  # by now the stranger would have been heard
        assert [event.hello.session for event in site.events if isinstance(event, NodeHello)] == ["s1"]
        assert not await stranger.poll(100)

    run(scene, tmp_path)


def test_a_known_key_cannot_speak_for_another_node_or_session(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        first, second = site.agent(context, "n1"), site.agent(context, "n2")
        await ask(first, hello("n1"), Welcome)
        refused = await ask(second, hello("n1", session="s2"), Refused)
        assert "another key" in refused.why
        answer = await ask(second, Beat(session="s1", seq=9, applied=0), BeatAck)
        assert not answer.known
        assert (await ask(first, Beat(session="s1", seq=1, applied=0), BeatAck)).known

    run(scene, tmp_path)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x04\x95pickle", b"\x91" * 5000])
def test_garbage_from_a_known_agent_does_no_harm(tmp_path: Path, data: bytes) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        await sock.send(data)
        await sock.send_multipart([b"a", b"b", data])
        await ask(sock, hello("n1"), Welcome)

    run(scene, tmp_path)


def test_b61_an_agent_that_restarts_many_times_is_back_each_time(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        for number in range(100):
            sock = site.agent(context, "n1")
            await ask(sock, hello("n1", session=f"s{number}"), Welcome)
            sock.close(linger=0)
        assert len(site.fleet._sessions) == 1

    run(scene, tmp_path)


def test_sessions_that_one_batch_supersedes_leave_nothing_behind(tmp_path: Path) -> None:
    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock, batch = site.agent(context, "n1"), site.events
        site.fleet._post = batch.append  # events wait, as between two batches
        for number in range(50):
            await sock.send(encode(hello("n1", session=f"s{number}")))
        async with asyncio.timeout(PATIENCE_S):
            while len(batch) < 50:
                await asyncio.sleep(0.01)
        out = [step(site.state, event, 1, CoreSettings()) for event in batch]
        site.fleet.after_commit([], [row for effects in out for row in effects.rows])
        assert [session.session for session in site.fleet._sessions.values()] == ["s49"]
        assert (await ask(sock, Beat(session="s49", seq=1, applied=0), BeatAck)).known
        sock.close(linger=0)

    run(scene, tmp_path)


BIG = 2**64 - 1


def test_numbers_that_cannot_be_are_mended_and_told_once_a_session(tmp_path: Path) -> None:
    gpu = DeviceInfo(id="GPU-1", kind="H100", index=BIG, memory_bytes=BIG)
    sample = DeviceSample(id="GPU-1", processes=(Process(pid=-1, whose="job", job=BIG, memory_bytes=-1),))
    telemetry = Telemetry(number=BIG, late=-1, left_out=-1, devices=(sample,))

    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        with structlog.testing.capture_logs() as lines:
            await ask(sock, hello("n1", devices=(gpu,)), Welcome)
            for seq in range(1, 4):
                await ask(sock, Beat(session="s1", seq=seq, applied=0, telemetry=telemetry), BeatAck)
        told = [line["event"] for line in lines if "cannot be true" in line["event"]]
        assert [event.split(" cannot")[0] for event in told] == ["what a node says that it is", "what a node measures"]
        device, seen = site.state.devices["GPU-1"], site.state.sensed["n1"].telemetry
        assert (device.index, device.memory_bytes) == (MOST_SMALL, None)
        assert (seen.number, seen.late, seen.left_out) == (MOST, 0, 0)
        assert seen.devices[0].processes == (Process(pid=0, whose="job"),)

    run(scene, tmp_path)


def test_no_node_answers_what_another_was_asked(tmp_path: Path) -> None:
    """Requests have numbers that can be guessed: a forged log would be another job's."""

    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        honest, other = site.agent(context, "n1"), site.agent(context, "n2")
        await ask(honest, hello("n1"), Welcome)
        await ask(other, hello("n2", session="s2"), Welcome)
        reading = asyncio.create_task(site.fleet.read_log("n1", 1, 1, 0, 0, 100))
        while not isinstance(asked := decode_to_agent(await asyncio.wait_for(honest.recv(), PATIENCE_S)), Read):
            pass
        await other.send(encode(Chunk(request=asked.request, offset=0, data=b"forged", size=6)))
        await ask(other, Beat(session="s2", seq=1, applied=0), BeatAck)  # by now the forged one has been heard
        await honest.send(encode(Chunk(request=asked.request, offset=0, data=b"true", size=4)))
        assert (await reading).data == b"true"

    run(scene, tmp_path)


@pytest.mark.parametrize(
    "lie", [{"data": b"x" * 101}, {"offset": -1}, {"offset": BIG}, {"size": -1}, {"size": BIG}], ids=str
)
def test_an_answer_that_cannot_be_one_is_no_log(tmp_path: Path, lie: dict[str, Any]) -> None:
    """A reader would collect it, or go on from there, without end."""

    async def scene(site: Site, context: zmq.asyncio.Context) -> None:
        sock = site.agent(context, "n1")
        await ask(sock, hello("n1"), Welcome)
        reading = asyncio.create_task(site.fleet.read_log("n1", 1, 1, 0, 0, 100))
        while not isinstance(asked := decode_to_agent(await asyncio.wait_for(sock.recv(), PATIENCE_S)), Read):
            pass
        await sock.send(encode(Chunk(**{"request": asked.request, "offset": 0, "data": b"log", "size": 3, **lie})))
        with pytest.raises(JctError, match="node n1 did not answer what was asked of it"):
            await reading

    run(scene, tmp_path)
