"""A small cluster for tests of the edges: the real core, store and policy, simulated agents, and a clock of our own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from policies import registry
from policies.registry import find
from scheduler.api.metrics import Metrics
from scheduler.core.entities import Event
from scheduler.core.errors import Code, JctError
from scheduler.core.events import (
    Cancel,
    CoreEvent,
    Hold,
    NodeHello,
    NodeReports,
    Planned,
    Release,
    Request,
    Submit,
    Tick,
)
from scheduler.core.passes import take_plan
from scheduler.core.settings import US, CoreSettings
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.story import Story
from scheduler.core.targets import targets_of
from scheduler.forecast.forecaster import Forecaster
from scheduler.forecast.process import Clock, Foresee, Foreseen, Weigh, Weighed, answer
from scheduler.protocol.messages import Chunk, DeviceInfo, Targets
from scheduler.protocol.spec import JobSpec
from scheduler.simulator.agent import SimulatedAgent
from scheduler.store.audit import Audit
from scheduler.store.repository import Repository
from scheduler.store.ring import EventRing
from scheduler.store.tokens import Role, Tokens
from scheduler.store.vault import Vault
from scheduler.store.webhooks import Webhooks

START_US = 1_800_000_000 * US


class Inline:
    """Forecasts without a process of their own."""

    async def foresee(self, question: Foresee) -> Foreseen:
        return answer(question, [registry.find(world.policy) for world in question.worlds], Clock())

    async def weigh(self, question: Weigh) -> Weighed:
        return registry.find(question.policy).terms(question.snapshot)

    async def close(self) -> None: ...


class SmallCluster:
    """Implements `scheduler.api.cluster.Cluster`. Two nodes of two fake devices; `advance` lets time pass.

    logs: what (job, attempt, member) wrote; missing: why a log is away; broken: what `trouble` answers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = Repository.open(f"sqlite:///{folder}/jctd.db")
        self.state: State = self.repository.load()
        self.tokens = Tokens(self.repository)
        self.audit = Audit(self.repository)
        self.vault = Vault.at(folder)
        self.ring = EventRing()
        self.webhooks = Webhooks(self.repository, self.vault)
        self._metrics = Metrics(self.state, "0", 3600.0)
        self.settings = CoreSettings()
        self.logs: dict[tuple[int, int, int], bytes] = {}
        self.missing = self.broken = ""
        self._now_us = START_US
        self._policy = find("priority")
        self.forecasts = Forecaster(self.state, Inline(), "priority", self.now_us, self._step)
        self._version = 0
        self._agents = [
            SimulatedAgent(
                node=node, devices=tuple(DeviceInfo(id=f"{node}-{i}", kind="fake", index=i) for i in range(2))
            )
            for node in ("n0", "n1")
        ]
        for agent in self._agents:
            self._step(NodeHello(hello=agent.hello(self._now_us / US), public_key=f"key-{agent.node}"))

    def close(self) -> None:
        self.repository.close()

    def token(self, user: str = "root", team: str = "ops", role: Role = Role.ADMIN, **more: int) -> str:
        return self.tokens.create(name="test", user=user, team=team, role=role, now_us=self._now_us, **more)[0]

    def advance(self, seconds: float, step_s: float = 0.25) -> None:
        """Time passes in small steps: agents exchange messages, timers fire, the policy decides."""
        for _ in range(round(seconds / step_s)):
            self._now_us += round(step_s * US)
            for agent in self._agents:
                self._exchange(agent)
            self._step(Tick())
            while (plan := take_plan(self.state, self._now_us)) is not None:
                self._step(Planned(decisions=self._policy.decide(plan.snapshot, 100), nonce="abcd"))

    def _exchange(self, agent: SimulatedAgent) -> None:
        self._version += 1
        targets = targets_of(self.state, agent.node, self.settings)
        now_s = self._now_us / US
        message = Targets(epoch=self.state.epoch, session=agent.session, version=self._version, targets=targets)
        agent.take(message, now_s)
        self._step(NodeReports(node=agent.node, session=agent.session, reports=agent.reports(now_s)))

    def _step(self, event: CoreEvent) -> int | None:
        out = step(self.state, event, self._now_us, self.settings)
        self.repository.commit(out)
        self._metrics.take(out.events)
        self.ring.add(out.events)
        for reply in out.replies:
            if reply.error is not None:
                raise reply.error
            return reply.job
        return None

    def _ask(self, request: Request) -> int:
        job = self._step(request)
        assert job is not None
        return job

    # --- what the API asks ----------------------------------------------------------------------------------

    def metrics(self) -> bytes:
        return self._metrics.render(self._now_us)

    @property
    def half_life_s(self) -> float:
        return self.settings.half_life_s

    def now_us(self) -> int:
        return self._now_us

    def trouble(self) -> str:
        return self.broken

    async def ask(self, make: Callable[[int], Request]) -> int:
        return self._ask(make(1))

    async def submit(
        self, spec: JobSpec, spec_key: str, user: str, key: str | None, sealed: str = "",
        past: tuple[tuple[int, str], ...] = (),
    ) -> int:
        return self._ask(
            Submit(request=1, spec=spec, spec_key=spec_key, user=user, key=key, sealed=sealed, past=past)
        )

    async def cancel(self, job: int, actor: str, reason: str) -> None:
        self._ask(Cancel(request=1, job=job, actor=actor, reason=reason))

    async def hold(self, job: int, actor: str) -> None:
        self._ask(Hold(request=1, job=job, actor=actor))

    async def release(self, job: int, actor: str) -> None:
        self._ask(Release(request=1, job=job, actor=actor))

    async def read_log(
        self, job: int, attempt: int, member: int, offset: int, limit: int, since_s: float | None = None
    ) -> Chunk:
        if (job, attempt, member) not in self.state.members:
            raise JctError(Code.NOT_FOUND, "no such member")
        written = self.logs.get((job, attempt, member), b"")
        if self.missing:
            return Chunk(request=1, offset=0, data=b"", size=0, missing=self.missing)
        start = max(0, len(written) + offset) if offset < 0 else min(offset, len(written))
        return Chunk(request=1, offset=start, data=written[start : start + limit], size=len(written))

    async def events(self, job: int | None, after: int, limit: int) -> list[Event]:
        return self.repository.history.events(job, after, limit)

    async def past_jobs(self, before: int | None, limit: int, team: str | None, results: Sequence[str]) -> list[Story]:
        return self.repository.history.past_jobs(before, limit, team, results)

    async def story(self, job: int) -> Story | None:
        return self.repository.history.story(job)
