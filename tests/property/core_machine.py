"""A machine that drives the core by random events, and what must hold after each of them."""

import copy

import hypothesis.strategies as st
import msgspec
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from policies.jct.policy import Policy
from policies.registry import find as find_policy
from scheduler.core.effects import Effects
from scheduler.core.entities import (
    Attempt,
    Device,
    Generation,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
    Node,
    ProfileRecord,
)
from scheduler.core.events import (
    Cancel,
    Change,
    CoreEvent,
    Erase,
    Hold,
    NodeHeard,
    NodeHello,
    NodeReports,
    Planned,
    Release,
    Submit,
    Tick,
    Write,
)
from scheduler.core.invariants import violations
from scheduler.core.passes import take_plan
from scheduler.core.records import Account, Drain
from scheduler.core.settings import US, CoreSettings
from scheduler.core.sizes import out_of_range, size_of
from scheduler.core.snapshot import take_snapshot
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.targets import targets_of
from scheduler.pass_question import Heard, Question, Told
from scheduler.protocol.messages import DeviceInfo, Health, Targets
from scheduler.protocol.spec import CheckpointSpec, JobSpec
from scheduler.simulator.agent import SimulatedAgent

CONFIG = CoreSettings()
NODES = ("n0", "n1")


class CoreMachine(RuleBasedStateMachine):
    """Two nodes with two devices each. Messages are lost when a rule says so; nothing else is out of the ordinary."""

    jobs = Bundle("jobs")

    def make_policy(self) -> Policy:
        return find_policy("priority")

    def make_agent(self, node: str, devices: tuple[DeviceInfo, ...]) -> SimulatedAgent:
        return SimulatedAgent(node=node, devices=devices)

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000 * US
        self.state = State(epoch=1, started_us=self.now, plan_wanted=True)
        self.policy = self.make_policy()
        self.ending = False
        self.told, self.heard = Told(), Heard()
        self.requests = 0
        self.answers: dict[int, object] = {}
        self.rows: dict[tuple[object, ...], object] = {}
        self.versions = dict.fromkeys(NODES, 0)
        self.beats = 0
        self.unwell: dict[str, str] = {}
        self.drained_by_people: dict[str, str] = {}
        self.agents = {
            node: self.make_agent(node, tuple(DeviceInfo(id=f"{node}-{i}", kind="fake", index=i) for i in range(2)))
            for node in NODES
        }
        for node in NODES:
            self._hello(node)

    # --- plumbing -------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.now / US

    def _step(self, event: CoreEvent) -> None:
        out = step(self.state, event, self.now, CONFIG)
        self._commit(out)

    def _commit(self, out: Effects) -> None:
        for device in out.gone_devices:
            self.rows.pop(("Device", device), None)
        for record in out.gone_records:
            self.rows.pop(record, None)
        for entity in out.rows:
            self.rows[_key(entity)] = entity
        for reply in out.replies:
            self.answers[reply.request] = reply

    def _ask(self, make: object) -> object:
        self.requests += 1
        self._step(make(self.requests))
        return self.answers[self.requests]

    def _pass(self) -> None:
        for _ in range(3):
            plan = take_plan(self.state, self.now)
            if plan is None:
                return
            decisions = self.policy.decide(plan.snapshot, 100)
            self._step(Planned(decisions=decisions, nonce="abcd"))
            self._who_is_out_of_range_is_told_why()

    def _who_is_out_of_range_is_told_why(self) -> None:
        """Or it changes now, or the policy is asked again."""
        wrong = [job.id for job in self.state.jobs.values() if out_of_range(self.state, job)]
        assert self.state.plan_wanted or set(wrong) <= self.state.unmet.keys()

    def _hello(self, node: str) -> None:
        agent = self.agents[node]
        self._step(NodeHello(hello=agent.hello(self.now_s), public_key=f"key-{node}"))

    def _exchange(self, node: str) -> None:
        """Targets down and Reports up, once."""
        agent = self.agents[node]
        if self.state.said_hello.get(node) != agent.session:
            self._hello(node)
        self.versions[node] += 1
        targets = targets_of(self.state, node, CONFIG)
        agent.take(
            Targets(epoch=self.state.epoch, session=agent.session, version=self.versions[node], targets=targets),
            self.now_s,
        )
        reports = agent.reports(self.now_s)
        self._step(NodeReports(node=node, session=agent.session, reports=reports))

    # --- what may happen ------------------------------------------------------------------------------------

    @rule(
        target=jobs,
        low=st.integers(1, 4),
        more=st.integers(0, 3),
        priority=st.integers(0, 100),
        steps=st.integers(1, 60),
        preemptible=st.booleans(),
        saves=st.booleans(),
    )
    def submit(self, low: int, more: int, priority: int, steps: int, preemptible: bool, saves: bool) -> int:
        spec = JobSpec(
            name="j",
            entrypoint="m:f",
            workdir="/w",
            min_devices=low,
            max_devices=min(4, low + more),
            priority=priority,
            total_steps=steps,
            global_batch=8,
            preemptible=preemptible,
            checkpoint=CheckpointSpec(dir=f"/own/{self.requests}") if saves else None,
        )
        reply = self._ask(lambda n: Submit(request=n, spec=spec, spec_key="k", user="u"))
        assert reply.job in self.state.jobs
        return reply.job

    @rule(job=consumes(jobs))
    def cancel(self, job: int) -> None:
        self._ask(lambda n: Cancel(request=n, job=job, actor="u"))

    @rule(job=jobs, priority=st.integers(0, 100))
    def set_priority(self, job: int, priority: int) -> None:
        self._ask(lambda n: Change(request=n, job=job, actor="admin", changes={"priority": priority}))

    @rule(job=jobs, low=st.integers(1, 4), more=st.integers(0, 3))
    def set_range(self, job: int, low: int, more: int) -> None:
        """Its owner wants another size, once it trains or whatever it is doing after a while."""
        for _ in range(12):
            if (found := self.state.jobs.get(job)) is None or size_of(self.state, found) is not None:
                break
            self.pass_time(seconds=0.3, lost=())
        changes = {"min_devices": low, "max_devices": min(4, low + more)}
        self._ask(lambda n: Change(request=n, job=job, actor="u", changes=changes))

    @rule(job=jobs)
    def hold(self, job: int) -> None:
        self._ask(lambda n: Hold(request=n, job=job, actor="u"))

    @rule(job=jobs)
    def release(self, job: int) -> None:
        self._ask(lambda n: Release(request=n, job=job, actor="u"))

    @rule(seconds=st.sampled_from((0.05, 0.3, 1.0, 5.0)), lost=st.sampled_from(((), ("n0",), ("n1",))))
    def pass_time(self, seconds: float, lost: tuple[str, ...]) -> None:
        """Time passes; nodes in `lost` are not heard meanwhile."""
        self.now += int(seconds * US)
        for node in NODES:
            if node not in lost:
                self._exchange(node)
        self._step(Tick())
        self._pass()

    @rule(node=st.sampled_from(NODES), seconds=st.sampled_from((20, 70)))
    def partition(self, node: str, seconds: int) -> None:
        """One node is silent for long while the other beats."""
        other = next(name for name in NODES if name != node)
        for _ in range(0, seconds, 5):
            self.now += 5 * US
            self._exchange(other)
            self._step(Tick())
            self._pass()

    @rule(node=st.sampled_from(NODES))
    def restart_agent(self, node: str) -> None:
        self.agents[node].restart()
        self._exchange(node)

    @rule(node=st.sampled_from(NODES))
    def reboot_node(self, node: str) -> None:
        self.agents[node].reboot()
        self._exchange(node)

    @rule(node=st.sampled_from(NODES), which=st.integers(0, 3))
    def kill_member(self, node: str, which: int) -> None:
        agent = self.agents[node]
        agent.reports(self.now_s)
        if agent.members:
            agent.kill_member(list(agent.members)[which % len(agent.members)], self.now_s)

    @rule(node=st.sampled_from(NODES))
    def repeat_old_reports(self, node: str) -> None:
        """Late and repeated messages change nothing."""
        agent = self.agents[node]
        reports = agent.reports(self.now_s)
        self._step(NodeReports(node=node, session=agent.session, reports=reports))
        before = copy.deepcopy(self.state.jobs)
        self._step(NodeReports(node=node, session=agent.session, reports=reports))
        self._step(NodeHeard(node=node, session="an older session"))
        assert self.state.jobs == before

    @rule(node=st.sampled_from(NODES), reason=st.sampled_from(("", "", "hot", "disk")), late=st.booleans())
    def tell_health(self, node: str, reason: str, late: bool) -> None:
        """Late beats change nothing, and neither do repeated ones."""
        session = self.agents[node].session
        if self.state.said_hello.get(node) != session:
            return
        self.beats += 1
        self._step(NodeHeard(node=node, session=session, beat=self.beats, health=Health(node=reason)))
        self.unwell[node] = reason
        if late:
            drains = copy.deepcopy(self.state.drains)
            for beat in (self.beats - 1, self.beats):
                other = reason if beat == self.beats else "of old"
                self._step(NodeHeard(node=node, session=session, beat=beat, health=Health(node=other)))
            assert self.state.drains == drains

    @rule(name=st.sampled_from(("node/n0", "node/n1", "device/n1-0", "device/n0-1")), drained=st.booleans())
    def drain(self, name: str, drained: bool) -> None:
        """By a person, who may also resume what was drained by itself."""
        if drained:
            record = Drain(name=name, reason="repair", by="op", since_us=self.now)
            self._ask(lambda n: Write(request=n, actor="op", record=record))
            self.drained_by_people[name] = record.reason
        else:
            self._ask(lambda n: Erase(request=n, actor="op", kind=Drain.kind, name=name))
            self.drained_by_people.pop(name, None)

    @rule()
    def restart_daemon(self) -> None:
        """Everything the database holds comes back as it was; what was in memory only is learnt again."""
        fresh = State(epoch=self.state.epoch + 1, started_us=self.now, plan_wanted=True)
        fresh.counters = self.state.counters
        for entity in self.rows.values():
            _restore(fresh, entity)
        for kind in ("attempts", "members", "generations", "leases", "nodes", "devices"):
            assert getattr(fresh, kind) == getattr(self.state, kind), kind
        assert {k: _lasting(j) for k, j in fresh.jobs.items()} == {k: _lasting(j) for k, j in self.state.jobs.items()}
        self.state = fresh
        self.versions = dict.fromkeys(NODES, 0)
        for node in NODES:
            self._exchange(node)

    # --- what must hold -------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_violated(self) -> None:
        assert violations(self.state) == []

    @invariant()
    def no_device_has_two_live_members(self) -> None:
        for agent in self.agents.values():
            agent.reports(self.now_s)
            devices = [member.target.device for member in agent.members.values()]
            assert len(devices) == len(set(devices))

    @invariant()
    def what_a_pass_remembers_of_waiting_jobs_is_so(self) -> None:
        remembered = take_snapshot(self.state, self.now)
        self.state.views.clear()
        assert take_snapshot(self.state, self.now) == remembered

    @invariant()
    def the_policys_process_sees_what_the_daemon_sees(self) -> None:
        snapshot = take_snapshot(self.state, self.now)
        question = msgspec.msgpack.encode(self.told.question(snapshot, 1))
        assert self.heard.snapshot(msgspec.msgpack.decode(question, type=Question)) == snapshot

    @invariant()
    def every_live_member_holds_its_device(self) -> None:
        held = {
            (lease.job, lease.attempt, lease.member)
            for lease in self.state.leases.values()
            if lease.state is LeaseState.HELD
        }
        for agent in self.agents.values():
            assert set(agent.members) <= held

    @invariant()
    def checks_drain_within_the_budget_and_touch_no_other_drain(self) -> None:
        by_people = {drain.name: drain.reason for drain in self.state.drains.values() if not drain.automatic}
        assert by_people == self.drained_by_people
        automatic = [drain for drain in self.state.drains.values() if drain.automatic]
        assert len(automatic) <= 1
        assert all(self.unwell[drain.name.removeprefix("node/")] == drain.reason for drain in automatic)

    def teardown(self) -> None:
        """Left alone, every job that may run ends, and the cluster is empty."""
        self.ending = True
        for node in NODES:
            self._exchange(node)
            self.tell_health(node, "", late=False)
        for name in list(self.state.drains):
            self.drain(name, drained=False)
        assert self.state.drains == self.drained_by_people == {}
        for job in self.state.jobs.values():
            if job.state is not JobState.DONE and job.wanted == "hold":
                self._ask(lambda n, id=job.id: Cancel(request=n, job=id, actor="u"))
        for _ in range(3_000):
            if all(job.state is JobState.DONE for job in self.state.jobs.values()):
                break
            self.now += 2 * US
            for node in NODES:
                self._exchange(node)
            self._step(Tick())
            self._pass()
        left = [job for job in self.state.jobs.values() if job.state is not JobState.DONE]
        assert left == [], [(job.id, job.state, job.reason_code, job.reason) for job in left]
        for node in NODES:
            self._exchange(node)
            self._exchange(node)
        assert self.state.leases == {}
        assert all(not agent.members and not agent.ended for agent in self.agents.values())


def _lasting(job: Job) -> tuple[object, ...]:
    """A job without the sentence that a pass may reword without a commit."""
    return tuple(getattr(job, name) for name in job.__slots__ if name != "reason")


def _key(entity: object) -> tuple[object, ...]:
    match entity:
        case Job(id=id) | Node(id=id) | Device(id=id) | Lease(id=id):
            return (type(entity).__name__, id)
        case Attempt(job=job, number=number):
            return ("Attempt", job, number)
        case Generation(job=job, attempt=attempt, number=number):
            return ("Generation", job, attempt, number)
        case Member(job=job, attempt=attempt, number=number):
            return ("Member", job, attempt, number)
        case ProfileRecord(spec_key=spec_key, device_kind=kind):
            return ("ProfileRecord", spec_key, kind)
        case Account(team=team, user=user):
            return ("Account", team, user)
    return (entity.kind, entity.name)


def _restore(state: State, entity: object) -> None:
    if isinstance(entity, Lease) and entity.state is LeaseState.CLOSED:
        return
    state.put(entity, Effects())
