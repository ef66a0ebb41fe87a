"""A workload through the daemon's own core under a virtual clock: submissions and ends in time, passes at rounds."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from policies.jct.policy import Policy
from policies.model.cluster import MeasuredMenu
from scheduler.core.effects import Effects
from scheduler.core.entities import Attempt, Job, JobState
from scheduler.core.events import CoreEvent, Planned, Submit, Tick
from scheduler.core.passes import take_plan
from scheduler.core.settings import US, CoreSettings, us
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.protocol.spec import CheckpointSpec, JobSpec
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload
from scheduler.simulator.world import World

EFFORT = 6_000
SCALE = 1000
"""Steps of the core in a step of the workload: the core counts whole steps, and some jobs have few and long ones."""

FOREVER_S = 1e9
CALM = CoreSettings(
    node_silent_s=FOREVER_S, node_lost_s=FOREVER_S, start_timeout_s=FOREVER_S, stall_s=FOREVER_S, replan_s=FOREVER_S,
    new_nodes=1 << 30,
)
"""Nothing fails here, so nothing is judged."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a job holds from a moment on; an empty placement means nothing. Node numbers count from 0."""

    time_s: float
    job: str
    placement: dict[str, int]
    plan: str | None


@dataclass(slots=True)
class Run:
    """What happened. ends_s by job name; pass_s: seconds of real time each pass took."""

    ends_s: dict[str, float] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)
    pass_s: list[float] = field(default_factory=list)


class Simulation:
    """One run of one policy."""

    def __init__(
        self, workload: Workload, nodes: Sequence[Nodes], policy: Policy, round_s: float, *, exact: bool = True
    ) -> None:
        self.workload, self.policy, self.round_us = workload, policy, us(round_s)
        self.exact = exact
        menus = {name: _in_core_steps(menu) for name, menu in workload.menus.items()}
        self.state = State(epoch=1, measured=menus)
        self.world = World(self.state, menus, tell_totals=exact)
        self.now = 0
        self.run = Run()
        self.live: dict[int, str] = {}
        self._held: dict[str, tuple[int, dict[str, int], str | None]] = {}
        self._waiting = list(reversed(workload.jobs))
        self._last_round = -self.round_us
        number = 0
        for group in nodes:
            for _ in range(group.count):
                self._step(self.world.hello(str(number), group.devices, group.kind))
                number += 1

    def play(self) -> Run:
        """Until every job has ended. Rounds at which nobody is there are skipped."""
        while self._waiting or self.live:
            if not self.live:
                self._advance(us(self._waiting[-1].submit_s))
            self._advance(self._next_round())
            self._round()
        return self.run

    def _next_round(self) -> int:
        """The first round after the last one that is not in the past."""
        at = -(-self.now // self.round_us) * self.round_us
        return at if at > self._last_round else self._last_round + self.round_us

    def _advance(self, until: int) -> None:
        """To a moment, through every submission and every word of a gang before it."""
        while True:
            due = self.world.next_due()
            submit = us(self._waiting[-1].submit_s) if self._waiting else None
            moments = [moment for moment in (due, submit) if moment is not None and moment <= until]
            if not moments:
                break
            self.now = max(self.now, min(moments))
            for event in self.world.pop_due(self.now):
                self._step(event)
            while self._waiting and us(self._waiting[-1].submit_s) <= self.now:
                self._submit(self._waiting.pop())
        self.now = max(self.now, until)

    def _submit(self, job: SimulatedJob) -> None:
        number = self.state.counters.job
        total = max(1, int(job.steps * SCALE)) if self.exact else None
        spec = spec_of(job, self.workload.menus[job.application], total)
        self.world.total[number] = job.steps * SCALE
        self.live[number] = job.name
        self._step(Submit(request=0, spec=spec, spec_key=job.application, user="simulated"))

    def _round(self) -> None:
        for event in self.world.progress(self.now):
            self._step(event)
        self._step(Tick())
        self._last_round = self.now
        self.state.plan_wanted = True
        plan = take_plan(self.state, self.now)
        assert plan is not None
        begun = time.perf_counter()
        decisions = self.policy.decide(plan.snapshot, EFFORT)
        self.run.pass_s.append(time.perf_counter() - begun)
        self._step(Planned(decisions=decisions, nonce="simulated"))
        self._log_changes()

    def _step(self, event: CoreEvent) -> None:
        """One step of the core, then whatever the world says to it."""
        queue = [event]
        while queue:
            out = step(self.state, queue.pop(0), self.now, CALM)
            self._note_ends(out)
            queue += self.world.watch(out, self.now)

    def _note_ends(self, out: Effects) -> None:
        for entity in out.rows:
            if isinstance(entity, Job) and entity.state is JobState.DONE:
                name = self.live.pop(entity.id)
                self.run.ends_s[name] = self.now / US
                self._held.pop(name, None)

    def _log_changes(self) -> None:
        """Compare what every job holds with what it held after the last round."""
        for number, name in self.live.items():
            attempt = self.state.open_attempt(number)
            key = (0, {}, None) if attempt is None else (attempt.number, *self._holds(attempt))
            if key != self._held.get(name, (0, {}, None)):
                self._held[name] = key
                self.run.starts[name] += bool(key[1])
                self.run.changes.append(Change(self.now / US, name, key[1], key[2]))

    def _holds(self, attempt: Attempt) -> tuple[dict[str, int], str | None]:
        members = self.state.members_of(attempt.job, attempt.number)
        generation = self.state.generation_of(attempt.job, attempt.number)
        plan = generation.plan.schedule if generation is not None and generation.plan is not None else None
        return dict(Counter(member.node for member in members)), plan


def spec_of(job: SimulatedJob, menu: MeasuredMenu, total_steps: int | None) -> JobSpec:
    """What the user of a simulated job would have submitted, and it saves when it is stopped. total_steps: in the
    core's steps, None for unknown."""
    sizes = [row.devices for row in menu.rows]
    return JobSpec(
        name=job.name, entrypoint="simulated:job", workdir="/", team=job.team, numerics="statistical",
        min_devices=min(sizes), max_devices=max(sizes), preferred_devices=job.asked, total_steps=total_steps,
        checkpoint=CheckpointSpec(dir=f"/{job.name}"),
    )  # fmt: skip


def _in_core_steps(menu: MeasuredMenu) -> MeasuredMenu:
    return MeasuredMenu(tuple(replace(row, step_time_s=row.step_time_s / SCALE) for row in menu.rows))
