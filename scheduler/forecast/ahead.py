"""Runs a forked state to the end of its jobs: the core's own steps, the policy's own passes, virtual agents."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import msgspec

from policies.jct.policy import Policy
from scheduler.core.entities import Attempt, AttemptKind, EndCause, Job, JobState, Result
from scheduler.core.events import CoreEvent, Planned, Submit, Tick
from scheduler.core.ledger import ledger
from scheduler.core.passes import take_plan
from scheduler.core.settings import us
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.story import story_of
from scheduler.core.timers import next_deadline
from scheduler.forecast.fork import Fork
from scheduler.forecast.futures import Arrivals, Chance
from scheduler.forecast.world import ForkedWorld
from scheduler.simulator.simulate import CALM

EFFORT = 200
SETTINGS = replace(CALM, jobs_kept=50)
"""Nothing fails in what is imagined."""


HORIZON_US = us(100 * 365 * 86_400.0)
"""What has not ended by then has no end: a job that never fits would go on beyond what a moment can be."""

LARGE = 50
"""So many jobs may have a pass every second; more of them have to do with fewer."""


class Pace(msgspec.Struct, frozen=True):
    """round_s: the least between two passes for each LARGE jobs; periodic_s: the most, since policies also wait for
    time to pass. The farther from now, the fewer: passes are at least as far apart as `coarse` of the time since the
    fork, and `calm` of it where nothing has changed.

    passes: after so many a future is broken off, and what has not ended by then has no end in it.
    """

    round_s: float = 1.0
    periodic_s: float = 60.0
    coarse: float = 0.02
    calm: float = 0.1
    passes: int = 400


class Fate(msgspec.Struct, frozen=True):
    """What becomes of a job in one future. Moments in microseconds; None where they did not come.

    start_us: of the next attempt that trains, None where it trained already and was not stopped. until_us: when the
    future was broken off or the job ended. The parts (seconds) are of its whole life, from submission to then. nodes,
    plan: what it gets first. guessed: its work is a guess.
    """

    job: int
    until_us: int
    start_us: int | None = None
    end_us: int | None = None
    completed: bool = False
    queueing_s: float = 0.0
    startup_s: float = 0.0
    training_s: float = 0.0
    preemptions_s: float = 0.0
    cleanup_s: float = 0.0
    preemptions: int = 0
    nodes: dict[str, int] = {}
    plan: str = ""
    guessed: bool = False


@dataclass(slots=True)
class Ahead:
    """One future. watched: jobs whose fates are still open; fates: of those that have ended."""

    world: ForkedWorld
    policy: Policy
    arrivals: Arrivals
    pace: Pace
    now: int
    watched: dict[int, None]
    begun_us: int
    fates: list[Fate] = field(default_factory=list)
    passes: int = 0
    last_pass: int = 0

    def run(self, enough: Callable[[], bool]) -> list[Fate]:
        """Until the watched jobs have ended, or the horizon, or too many passes, or `enough` says so."""
        self._steps(self.world.changes_to_drop())
        end_us = self.begun_us + HORIZON_US
        while self.watched and self.now < end_us and self.passes < self.pace.passes and not enough():
            self._live_until(self._next_deadline())
            while self.arrivals.next_us is not None and self.arrivals.next_us <= self.now:
                self._arrive()
            self._steps([Tick()])
            if self._pass_at() <= self.now:
                self._pass()
        return [*self.fates, *(self._fate(self.state.jobs[id]) for id in self.watched)]

    @property
    def state(self) -> State:
        return self.world.state

    def _next_deadline(self) -> int | None:
        """Of the core's timers and of arrivals."""
        due = [self.arrivals.next_us] if self.arrivals.next_us is not None else []
        core = next_deadline(self.state, self.now, SETTINGS)
        if core < self.now + us(SETTINGS.replan_s):
            due.append(max(core, self.now + 1))
        return min(due, default=None)

    def _live_until(self, deadline: int | None) -> None:
        """Through all that gangs say, to a moment or to the next pass, whichever comes first."""
        while True:
            until = self._pass_at() if deadline is None else min(deadline, self._pass_at())
            due = self.world.next_due()
            if due is None or due > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, due)
            self._steps(self.world.pop_due(self.now))

    def _pass_at(self) -> int:
        elapsed = self.now - self.begun_us
        if self.state.plan_wanted:
            return self.last_pass + max(us(self.pace.round_s), round(elapsed * self.pace.coarse))
        return self.last_pass + max(us(self.pace.periodic_s), round(elapsed * self.pace.calm))

    def _pass(self) -> None:
        self.passes += 1
        self.last_pass = self.now
        self.world.note_progress(self.now)
        self.state.plan_wanted = True
        plan = take_plan(self.state, self.now)
        assert plan is not None
        self._steps([Planned(decisions=self.policy.decide(plan.snapshot, EFFORT), nonce="imagined")])

    def _arrive(self) -> None:
        one, spec = self.arrivals.pop()
        before = self.state.counters.job
        self._steps([Submit(request=0, spec=spec, spec_key=one.spec_key, user=one.user)])
        for id in range(before, self.state.counters.job):
            self.world.meet(self.state.jobs[id], one.work)

    def _steps(self, events: Iterable[CoreEvent]) -> None:
        """Steps of the core, and whatever the world says to each."""
        for event in events:
            queue = [event]
            while queue:
                out = step(self.state, queue.pop(0), self.now, SETTINGS)
                queue += self.world.watch(out, self.now)
                for row in out.rows:
                    if isinstance(row, Job) and row.state is JobState.DONE and row.id in self.watched:
                        del self.watched[row.id]
                        self.fates.append(self._fate(row))


    def _fate(self, job: Job) -> Fate:
        state, attempts = self.state, story_of(self.state, job).attempts
        cut = ledger(job, attempts, self.now)
        first = next((a for a in attempts if _starts_after(a, self.begun_us)), None)
        members = state.present_members(job.id, first.number) if first is not None else []
        generation = state.generation_of(job.id, first.number) if first is not None else None
        plan = generation.plan if generation is not None and not job.spec.is_command else None
        return Fate(
            job=job.id, until_us=self.now, start_us=first.starting_us if first is not None else None,
            end_us=job.ended_us, completed=job.result is Result.COMPLETED,
            queueing_s=cut.queueing_us / 1e6, startup_s=cut.startup_us / 1e6, training_s=cut.training_us / 1e6,
            preemptions_s=cut.preemptions_us / 1e6, cleanup_s=cut.cleanup_us / 1e6,
            preemptions=sum(a.cause is EndCause.PREEMPTED and (a.ended_us or 0) >= self.begun_us for a in attempts),
            nodes=dict(Counter(member.node for member in members)),
            plan=plan.shape + plan.saving if plan is not None else "",
            guessed=job.id in self.world.guessed,
        )  # fmt: skip


def _starts_after(attempt: Attempt, moment_us: int) -> bool:
    trains = attempt.kind is not AttemptKind.PROBE
    return trains and attempt.starting_us is not None and attempt.starting_us >= moment_us


def begin_ahead(fork: Fork, policy: Policy, seed: int, pace: Pace) -> Ahead:
    """One future of a fork, which is used up."""
    watched = dict.fromkeys(job.id for job in fork.state.jobs.values() if job.state is not JobState.DONE)
    world = ForkedWorld.of(fork, Chance(seed))
    arrivals = Arrivals(fork.arrivals, fork.now_us, seed)
    pace = msgspec.structs.replace(pace, round_s=pace.round_s * max(1.0, len(watched) / LARGE))
    ahead = Ahead(world, policy, arrivals, pace, fork.now_us, watched, fork.now_us)
    ahead.last_pass = fork.now_us - us(pace.round_s)
    return ahead


def run_ahead(fork: Fork, policy: Policy, seed: int, pace: Pace, enough: Callable[[], bool]) -> list[Fate]:
    """What becomes of the jobs in one future. enough: asked between passes; True breaks off."""
    return begin_ahead(fork, policy, seed, pace).run(enough)
