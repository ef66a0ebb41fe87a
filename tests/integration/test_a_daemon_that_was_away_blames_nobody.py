"""A daemon that could not listen, for a blocked database or being stopped, calls no node silent for it (B05, B08)."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from scheduler.core.entities import NodeState
from scheduler.core.events import NodeHeard, NodeHello
from scheduler.core.settings import US, CoreSettings
from scheduler.driver import BATCH_EVENTS, Driver
from scheduler.pass_process import PassProcess
from scheduler.protocol.messages import Hello
from scheduler.store.repository import Repository, Unavailable

NODES = [f"n{number}" for number in range(2 * BATCH_EVENTS)]
AWAY_S = 90
PATIENCE_S = 30.0


@pytest.fixture
def repository(tmp_path: Path):
    opened = Repository.open(f"sqlite:///{tmp_path}/jctd.db")
    yield opened
    opened.close()


class Clocked(Driver):
    """Its clock is ours."""

    def __init__(self, repository: Repository) -> None:
        self.clock_us = 1_000 * US
        super().__init__(
            repository.load(), repository, PassProcess("fifo"), CoreSettings(), lambda: self.clock_us
        )


@pytest.fixture
def driver(repository):
    return Clocked(repository)


async def until(what) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.01)


def beats(driver: Clocked, seconds: int) -> None:
    """What all agents have said meanwhile waits to be read."""
    for _ in range(seconds // 5):
        driver.clock_us += 5 * US
        for node in NODES:
            driver.post(NodeHeard(node=node, session="s"))


@contextlib.asynccontextmanager
async def running(driver: Clocked):
    """All nodes are there, and the time in which nobody is judged after a start is over."""
    task = asyncio.create_task(driver.run())
    for node in NODES:
        said = Hello(node=node, machine=node, boot="b", session="s", address="127.0.0.1", devices=())
        driver.post(NodeHello(hello=said, public_key=node))
    await until(lambda: len(driver.state.nodes) == len(NODES))
    for _ in range(12):
        beats(driver, 5)
        await until(driver._events.empty)
    yield
    await until(driver._events.empty)
    await asyncio.sleep(0.1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert {node.state for node in driver.state.nodes.values()} == {NodeState.UP}


def test_b05_a_database_that_was_blocked_for_longer_than_a_lost_nodes_silence_loses_no_node(driver, monkeypatch):
    monkeypatch.setattr("scheduler.driver.RETRY_S", 0.01)
    commit, blocked = driver._repository.commit, []

    def stubborn(*batch):
        if blocked:
            raise Unavailable("database is locked")
        commit(*batch)

    monkeypatch.setattr(driver._repository, "commit", stubborn)

    async def scene() -> None:
        async with running(driver):
            blocked.append(True)
            beats(driver, 5)
            await until(lambda: driver.trouble)
            beats(driver, AWAY_S)
            blocked.clear()

    asyncio.run(scene())
    assert told(driver) == set()


def test_b08_a_daemon_that_was_stopped_for_longer_than_a_lost_nodes_silence_loses_no_node(driver):
    async def scene() -> None:
        async with running(driver):
            driver.clock_us += AWAY_S * US  # a timer is long due, and what agents have said is not read yet
            await asyncio.sleep(0.1)
            beats(driver, 5)

    asyncio.run(scene())
    assert told(driver) == set()


def test_a_node_that_is_silent_while_the_daemon_listens_is_lost_all_the_same(driver):
    async def scene() -> None:
        async with running(driver):
            for _ in range(AWAY_S):
                driver.clock_us += US
                for node in NODES[1:]:
                    driver.post(NodeHeard(node=node, session="s"))
                await until(driver._events.empty)
            await until(lambda: "NodeLost" in told(driver))
            said = Hello(node=NODES[0], machine=NODES[0], boot="b", session="t", address="127.0.0.1", devices=())
            driver.post(NodeHello(hello=said, public_key=NODES[0]))

    asyncio.run(scene())


def told(driver: Clocked) -> set[str]:
    kinds = {event.kind for event in driver._repository.history.events(None, 0, 1_000)}
    return kinds & {"NodeSilent", "NodeLost"}
