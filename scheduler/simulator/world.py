"""Simulated gangs on simulated nodes: they start, train, save, stop and end at exact moments, and report so.

The core sees the same messages as from real agents. Gangs keep exact progress, of which the core is told whole steps.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from policies.model.cluster import MeasuredMenu
from scheduler.core.effects import Effects
from scheduler.core.entities import Attempt, AttemptState, Member
from scheduler.core.events import NodeHello, NodeReports
from scheduler.core.settings import US, us
from scheduler.core.state import State
from scheduler.core.targets import pilot_of
from scheduler.protocol.messages import Cause, DeviceInfo, Hello, Phase, Report
from scheduler.simulator.placing import row_of

SESSION = "simulated"


@dataclass(slots=True)
class Gang:
    """A running attempt. pilot: the member that speaks for it. begins_us: when it is past its start-up. done: steps
    done before this attempt."""

    attempt: Attempt
    members: list[Member]
    pilot: int
    begins_us: int
    step_time_s: float
    done: float
    total: float

    @property
    def ends_us(self) -> int:
        return self.begins_us + us((self.total - self.done) * self.step_time_s)

    def at(self, now: int) -> float:
        """Steps done by a moment."""
        return min(self.total, self.done + max(0, now - self.begins_us) / US / self.step_time_s)


@dataclass(slots=True)
class World:
    """What is true outside the core. total: steps of each job; done: steps in each job's newest checkpoint."""

    state: State
    menus: dict[str, MeasuredMenu]
    tell_totals: bool
    total: dict[int, float] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    gangs: dict[tuple[int, int], Gang] = field(default_factory=dict)
    _due: list[tuple[int, int, tuple[int, int], str]] = field(default_factory=list)
    _seq: int = 0

    def hello(self, node: str, devices: int, kind: str) -> NodeHello:
        infos = tuple(DeviceInfo(id=f"{node}-{index}", kind=kind, index=index) for index in range(devices))
        said = Hello(
            node=node, machine=node, boot="b", session=SESSION, address="127.0.0.1", devices=infos, reports=()
        )
        return NodeHello(hello=said, public_key=node)

    def next_due(self) -> int | None:
        """The next moment at which a gang has something to say."""
        return self._due[0][0] if self._due else None

    def watch(self, out: Effects, now: int) -> list[NodeReports]:
        """What follows from a committed step: gangs that start, and the last words of those that stop."""
        news: list[NodeReports] = []
        for entity in out.rows:
            if isinstance(entity, Attempt):
                key = (entity.job, entity.number)
                if entity.state is AttemptState.STARTING and key not in self.gangs:
                    self._start(entity, now)
                elif entity.state is AttemptState.STOPPING and key in self.gangs:
                    news += self._stop(self.gangs.pop(key), now)
        return news

    def _start(self, attempt: Attempt, now: int) -> None:
        job = self.state.jobs[attempt.job]
        members = self.state.members_of(attempt.job, attempt.number)
        generation = self.state.generation_of(attempt.job, attempt.number)
        assert generation is not None
        assert generation.plan is not None
        kind = self.state.devices[members[0].device].kind
        row = row_of(self.menus[job.spec_key], generation.plan, kind, [member.node for member in members])
        gang = Gang(
            attempt, members, pilot_of(attempt, generation), now + us(row.restart_s), row.step_time_s,
            self.done[job.id], self.total[job.id],
        )  # fmt: skip
        key = (attempt.job, attempt.number)
        self.gangs[key] = gang
        first = gang.begins_us + us(gang.step_time_s) + 1
        self._push(min(first, gang.ends_us), key, "progress")
        self._push(gang.ends_us, key, "end")

    def _push(self, at: int, key: tuple[int, int], what: str) -> None:
        self._seq += 1
        heapq.heappush(self._due, (at, self._seq, key, what))

    def pop_due(self, now: int) -> Iterator[NodeReports]:
        """What gangs say at this moment."""
        while self._due and self._due[0][0] <= now:
            _, _, key, what = heapq.heappop(self._due)
            if (gang := self.gangs.get(key)) is not None:
                yield from self._say(gang, what, now)

    def _say(self, gang: Gang, what: str, now: int) -> Iterator[NodeReports]:
        if what == "progress":
            yield from self._progress(gang, now)
        else:
            job, number = gang.attempt.job, gang.attempt.number
            del self.gangs[job, number]
            self.done[job] = gang.total
            yield from self._gone(gang, Cause.FINISHED, gang.total)

    def progress(self, now: int) -> Iterator[NodeReports]:
        """Every pilot's progress, as a pass wants to know it."""
        for gang in list(self.gangs.values()):
            if gang.begins_us < now:
                yield from self._progress(gang, now)

    def _progress(self, gang: Gang, now: int) -> Iterator[NodeReports]:
        pilot = gang.members[gang.pilot]
        step = max(int(gang.at(now)), int(gang.done) + 1)
        yield self._reports(pilot.node, [self._report(gang, pilot, Phase.TRAINING, step=step)])

    def _stop(self, gang: Gang, now: int) -> list[NodeReports]:
        self.done[gang.attempt.job] = gang.at(now)
        return list(self._gone(gang, Cause.STOPPED, gang.at(now)))

    def _gone(self, gang: Gang, cause: Cause, done: float) -> Iterator[NodeReports]:
        nodes: dict[str, list[Report]] = {}
        for member in gang.members:
            pilot = member.number == gang.pilot
            report = self._report(
                gang, member, Phase.GONE, cause=cause,
                step=int(done) if pilot else None, saved=int(done) if pilot else None,
            )  # fmt: skip
            nodes.setdefault(member.node, []).append(report)
        return (self._reports(node, reports) for node, reports in nodes.items())

    def _report(
        self, gang: Gang, member: Member, phase: Phase, *,
        step: int | None = None, saved: int | None = None, cause: Cause | None = None,
    ) -> Report:  # fmt: skip
        self._seq += 1
        return Report(
            job=member.job, attempt=member.attempt, member=member.number, seq=self._seq, generation=1, phase=phase,
            step=step, saved=saved, cause=cause, exit_code=0 if cause is not None else None,
            resumed_step=int(gang.done),
            total_steps=max(1, int(gang.total)) if self.tell_totals else None,
        )  # fmt: skip

    @staticmethod
    def _reports(node: str, reports: Iterable[Report]) -> NodeReports:
        return NodeReports(node=node, session=SESSION, reports=tuple(reports))
