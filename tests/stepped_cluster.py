"""A live cluster in stepped time: driver, database, pass process, ZeroMQ and agents with fake devices, all real.

Time does not run. It jumps to the next moment at which anything is due, once everything that the last moment brought
has been told, committed and acknowledged by every agent.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agent.fake import FakeGangs
from agent.folders import Folders
from agent.link import Keys
from agent.main import Agent
from policies.model.cluster import MeasuredMenu
from scheduler.core.entities import Job, JobState, NodeState
from scheduler.core.events import Submit, Tick
from scheduler.core.settings import US
from scheduler.driver import Driver
from scheduler.pass_process import PassProcess
from scheduler.protocol.messages import DeviceInfo, FromAgent, Hello, Reports
from scheduler.protocol.spec import JobSpec
from scheduler.simulator.simulate import CALM
from scheduler.store.repository import Repository
from scheduler.transport.fleet import Fleet
from scheduler.transport.keys import AllowedAgents, allow_agent, own_pair
from scheduler.transport.router import Router

START_US = 1_800_000_000 * US
LOOK_S = 0.003
PATIENCE_S = 60.0
NEVER_S = 1e6
KIND = "fake"


class FakeNode(Agent):
    """One agent. sent: the number of its last Reports; heard: of the last that came to the daemon."""

    def __init__(self, cluster: "SteppedCluster", node: str, devices: int) -> None:
        folder = cluster.folder / f"node-{node}"
        allow_agent(cluster.folder, folder, node)
        public, secret = own_pair(folder, "agent")
        keys = Keys(public, secret, own_pair(cluster.folder, "daemon")[0])
        infos = tuple(DeviceInfo(id=f"{node}-{index}", kind=KIND, index=index) for index in range(devices))
        kinds = {device.id: device.kind for device in infos}
        folders = Folders(folder)
        self.gangs = FakeGangs(folders, kinds, lambda: cluster.elapsed_s, cluster.start_s, NEVER_S)
        self.sent = self.heard = 0
        identity = Hello(node=node, machine=node, boot="b", session=node, address="127.0.0.1", devices=infos)
        super().__init__(identity, self.gangs, folders, cluster.router.endpoint, keys)

    def reports(self) -> Reports:
        made = super().reports()
        self.sent = made.seq
        return made

    @property
    def settled(self) -> bool:
        return self.link.settled and self.sent == self.heard


class SteppedCluster:
    """menus: of each spec key. round_s: between passes. start_s: what the start of a gang takes."""

    def __init__(
        self, folder: Path, menus: dict[str, MeasuredMenu], policy: str, round_s: float, start_s: float
    ) -> None:
        self.folder, self.start_s = folder, start_s
        self.round_us = round(round_s * US)
        self.now_us = START_US
        self.repository = Repository.open(f"sqlite:///{folder}/jctd.db")
        self.state = self.repository.load()
        self.state.measured = menus
        settings = replace(CALM, replan_s=round_s, pass_gap_s=round_s)
        self.driver = Driver(self.state, self.repository, PassProcess(policy), settings, lambda: self.now_us)
        self.router = Router("tcp://127.0.0.1:*", own_pair(folder, "daemon"), AllowedAgents(folder / "agents"))
        loop = asyncio.get_running_loop()
        self.fleet = Fleet(self.router, self.state, settings, self.driver.post, loop.time, lambda job: {})
        self.driver.after_commit = lambda effects: self.fleet.after_commit(effects.refusals, effects.rows)
        self.nodes: dict[str, FakeNode] = {}
        self._tasks = [asyncio.create_task(self.driver.run()), asyncio.create_task(self.router.run(self._take))]

    @property
    def elapsed_s(self) -> float:
        return (self.now_us - START_US) / US

    def _take(self, route: bytes, key: str, message: FromAgent) -> None:
        self.fleet.take(route, key, message)
        if isinstance(message, Reports):
            self.nodes[message.session].heard = message.seq

    async def add_node(self, node: str, devices: int) -> None:
        """One after another, so that the daemon knows them in this order."""
        made = self.nodes[node] = FakeNode(self, node, devices)
        self._tasks.append(asyncio.create_task(made.link.run()))
        await self._until(lambda: node in self.state.nodes and self.state.nodes[node].state is NodeState.UP)
        await self._settle()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in self.nodes.values():
            await node.gangs.close()
        self.router.close()
        self.repository.close()

    async def play(self, submissions: Iterable[tuple[float, JobSpec, str]]) -> list[Job]:
        """Submit (seconds from now on, spec, spec key), and let time pass until all jobs are done."""
        begun_s = self.elapsed_s
        waiting = [(begun_s + at, spec, key) for at, spec, key in submissions]
        while waiting or any(job.state is not JobState.DONE for job in self.state.jobs.values()):
            news_s = min(node.gangs.next_news_s() for node in self.nodes.values())
            event_s = min(news_s, waiting[0][0]) if waiting else news_s
            pass_us = self.state.planned_us + self.round_us
            event_us = START_US + math.ceil(event_s * US) + 1 if event_s < math.inf else pass_us + 1
            if pass_us < event_us:
                await self._jump(pass_us - US // 1000)  # whom a pass asks about has told it how far it is
                await self._jump(pass_us)
                continue
            await self._jump(event_us)
            while waiting and waiting[0][0] <= self.elapsed_s:
                _, spec, key = waiting.pop(0)
                await self._submit(spec, key)
        return list(self.state.jobs.values())

    async def _submit(self, spec: JobSpec, key: str) -> None:
        await self.driver.ask(lambda number: Submit(request=number, spec=spec, spec_key=key, user="stepped"))
        await self._settle()

    async def _jump(self, to_us: int) -> None:
        self.now_us = max(self.now_us, to_us)
        await self._settle()
        self.driver.post(Tick())
        await self._settle()

    async def _settle(self) -> None:
        """Until nobody has anything left to say at this moment."""
        while True:
            await self._until(self._settled)
            for node in self.nodes.values():
                node.gangs.look()
            if self._settled():
                return

    def _settled(self) -> bool:
        return all(node.settled for node in self.nodes.values()) and self.driver.settled and self.fleet.settled

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def stepped_cluster(
    folder: Path, menus: dict[str, MeasuredMenu], *, nodes: int, devices: int, policy: str, round_s: float,
    start_s: float,
) -> AsyncIterator[SteppedCluster]:
    cluster = SteppedCluster(folder, menus, policy, round_s, start_s)
    try:
        for number in range(nodes):
            await cluster.add_node(str(number), devices)
        yield cluster
    finally:
        await cluster.close()
