"""Simulated gangs that change their shape while they run: what real members do between them, decided in one place."""

from dataclasses import dataclass, field
from random import Random

from policies.ir.plan import ParallelPlan
from scheduler.protocol.fake import STEPS, STORE, FakeMember, report_at
from scheduler.protocol.messages import Cause, Phase, Report, Stop, Target
from scheduler.protocol.reconcile import Key, SpawnMember
from scheduler.simulator.agent import SimulatedAgent

STEP_S = 0.3


@dataclass
class Gang:
    """A training attempt over all its nodes. alive: newest Target of each living member; ends: of those that ended."""

    first: Target
    alive: dict[int, Target] = field(default_factory=dict)
    ends: dict[int, tuple[Cause, str]] = field(default_factory=dict)
    begun_s: float | None = None
    dropped: int = 0

    def __post_init__(self) -> None:
        self.generation, self.plan, self.ranks = self.first.generation, self.first.plan, self.first.ranks
        self.step = self.first.spec.saved_step or 0
        self.saved: int | None = None
        self.total = self.first.spec.job.total_steps or STEPS

    @property
    def pilot(self) -> int:
        assert isinstance(self.plan, ParallelPlan)
        return self.ranks[self.plan.pilot_rank]

    def advance(self, now_s: float) -> None:
        """Let happen what happens between members up to this moment."""
        for member, target in list(self.alive.items()):
            if isinstance(target.want, Stop) and (target.want.grace_s == 0 or member not in self.ranks):
                self._end(member, Cause.KILLED)
        if any(member in self.ends for member in self.ranks):
            self._end_all(Cause.PEER_LOST)
            return
        if self.begun_s is None:
            stopped = any(isinstance(target.want, Stop) for target in self.alive.values())
            if stopped:
                self._end_all(Cause.STOPPED)
            elif all(member in self.alive and self.alive[member].store for member in self.ranks):
                self.begun_s = now_s
            return
        steps = int((now_s - self.begun_s) / STEP_S)
        self.begun_s += steps * STEP_S
        self.step = min(self.total, self.step + steps)
        want = self.alive[self.pilot].want
        if self.step == self.total:
            self.saved = self.step
            self._end_all(Cause.FINISHED)
        elif isinstance(want, Stop):
            self.saved = self.step if want.save else self.saved
            self._end_all(Cause.STOPPED)
        elif steps:
            self._change()

    def _change(self) -> None:
        """At a step's boundary, once everybody of both shapes is there: the decision."""
        target = self.alive[self.pilot]
        if target.generation <= max(self.generation, self.dropped) or target.store is None:
            return
        union = {*self.ranks, *target.ranks}
        if not all(m in self.alive and self.alive[m].generation == target.generation for m in union):
            return
        if Random(f"{target.job}.{target.attempt} {target.generation}").random() < 0.25:
            self.dropped = target.generation
            for member in union.difference(self.ranks):
                self._end(member, Cause.STOPPED)
            return
        self.generation, self.plan, self.ranks = target.generation, target.plan, target.ranks
        for member in union.difference(self.ranks):
            self._end(member, Cause.STOPPED)

    def _end(self, member: int, cause: Cause) -> None:
        if self.alive.pop(member, None) is not None:
            self.ends[member] = (cause, "")

    def _end_all(self, cause: Cause) -> None:
        for member in list(self.alive):
            self._end(member, cause)

    def report(self, member: int, now_s: float) -> Report:
        """What a member says of itself."""
        report = Report(
            job=self.first.job, attempt=self.first.attempt, member=member, seq=int(now_s * 1000), phase=Phase.JOINING,
            global_batch=self.first.plan.global_batch, total_steps=self.total, fingerprint="fake",
        )  # fmt: skip
        present, changes = member in self.ranks, {}
        if present and self.begun_s is not None:
            changes = {"phase": Phase.TRAINING, "generation": self.generation, "plan": self.plan, "live": True}
        if present and self.begun_s is not None and member == self.pilot:
            resumed = self.first.spec.saved_step or 0
            changes |= {"step": self.step, "saved": self.saved, "resumed_step": resumed, "dropped": self.dropped}
        if member in self.ends:
            cause, message = self.ends[member]
            changes |= {"phase": Phase.GONE, "cause": cause, "message": message, "exit_code": 0}
        elif member == self.alive[member].pilot:
            changes |= {"store": STORE, "store_generation": self.alive[member].generation}
        values = {name: getattr(report, name) for name in Report.__struct_fields__}
        if "generation" not in changes and member in self.alive:
            changes["generation"] = self.alive[member].generation if not present else self.generation
        return Report(**{**values, **changes})


@dataclass(slots=True)
class LiveAgent(SimulatedAgent):
    """A node whose trainings belong to gangs that all agents of a test share; its probes are fakes."""

    gangs: dict[tuple[int, int], Gang] = field(default_factory=dict)

    def reports(self, now_s: float) -> tuple[Report, ...]:
        found: list[Report] = []
        for key, member in list(self.members.items()):
            report = self._report(key, member, now_s)
            if report.phase is Phase.GONE:
                self.ended[key] = report
                del self.members[key]
            else:
                found.append(report)
        return (*self.ended.values(), *found)

    def _report(self, key: Key, member: FakeMember, now_s: float) -> Report:
        gang = self.gangs.get(key[:2])
        if gang is None:
            return report_at(member, now_s)
        if key[2] in gang.alive:
            gang.alive[key[2]] = member.target
        gang.advance(now_s)
        return gang.report(key[2], now_s)

    def _act(self, action: object, now_s: float) -> None:
        SimulatedAgent._act(self, action, now_s)
        if isinstance(action, SpawnMember) and action.target.plan is not None:
            target = action.target
            gang = self.gangs.setdefault(target.key[:2], Gang(target))
            if target.member not in gang.ends:
                gang.alive[target.member] = target
            if not set(gang.ranks).isdisjoint(gang.ends):  # it came after the gang's end
                gang.advance(now_s)

    def kill_member(self, key: Key, now_s: float) -> None:
        SimulatedAgent.kill_member(self, key, now_s)
        self._lost(key)

    def reboot(self) -> None:
        for key in list(self.members):
            self._lost(key)
        SimulatedAgent.reboot(self)

    def _lost(self, key: Key) -> None:
        gang = self.gangs.get(key[:2])
        if gang is not None and gang.alive.pop(key[2], None) is not None:
            gang.ends[key[2]] = (Cause.SIGNAL, "killed")
