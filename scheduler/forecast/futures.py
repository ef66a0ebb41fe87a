"""What one future draws: how much work jobs have that did not say, how slow they are, and who else will come."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from scheduler.core.commands import LASTS_S
from scheduler.core.entities import Job
from scheduler.core.state import State
from scheduler.forecast.fork import Arrival
from scheduler.protocol.spec import CheckpointSpec, JobSpec

LEAST_ALIKE = 3
"""From so many finished jobs on, their work tells of that of another."""

LEAST_ARRIVALS = 8
MOST_TIMES = 2
NEWEST_ARRIVALS = (15, 30, 60, 120, 240)
"""Of whose intervals those to come are drawn, one in each future: nobody knows how long the rate of late will last."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of the logarithms of what is not known exactly. measured_step: of a step time that a running
    attempt has shown; step: of one that was only predicted; start: of start-ups; work: where nothing tells of it."""

    measured_step: float = 0.03
    step: float = 0.10
    start: float = 0.25
    work: float = 1.0


@dataclass(slots=True)
class Chance:
    """The draws of one future, the same for a job whatever else changes: two worlds with one seed are comparable."""

    seed: int
    spread: Spread = field(default_factory=Spread)

    def factor(self, job: int, what: str, deviation: float) -> float:
        """Around 1, with this standard deviation of its logarithm."""
        return math.exp(random.Random(f"{self.seed}/{job}/{what}").gauss(0.0, deviation))

    def pick(self, job: int, what: str, values: Sequence[float]) -> float:
        return random.Random(f"{self.seed}/{job}/{what}").choice(values)


def steps_in_all(
    state: State, job: Job, done: float, arrivals: Sequence[Arrival], chance: Chance
) -> tuple[float, bool]:
    """A job's work in steps, a command's in seconds, and whether that is more than a guess.

    Declared or probed work is taken as it is, and what a running command tells of its steps; else one of the finished
    jobs most like it that took longer than this one has by now; else as much again as it has had (of heavy-tailed
    sizes), or an hour.
    """
    declared = job.total_steps or state.probed(job).total_steps
    if declared is not None and not job.spec.is_command:
        return float(declared), True
    if job.spec.is_command and (left_s := _told_left_s(state, job)) is not None:
        return done + left_s * chance.factor(job.id, "step", chance.spread.measured_step), True
    for alike in _alike(job, arrivals):
        longer = [work for work in alike if work > done]
        if len(longer) >= LEAST_ALIKE:
            return chance.pick(job.id, "work", longer), True
    more = max(done, min(job.spec.time_limit_s or LASTS_S, LASTS_S) if job.spec.is_command else 1_000.0)
    return done + more * chance.factor(job.id, "work", chance.spread.work), False


def _told_left_s(state: State, job: Job) -> float | None:
    """Seconds to the end of a command that tells its steps, as fast as it is now."""
    progress = state.progress.get(job.id)
    if not job.total_steps or progress is None or progress.step is None or progress.step_time_s is None:
        return None
    return max(0, job.total_steps - progress.step) * progress.step_time_s


def _alike(job: Job, arrivals: Sequence[Arrival]) -> list[list[float]]:
    """Work of finished jobs of the same kind: of the same user and name, then of the same code, then of the team."""
    kind = job.spec.is_command
    known = [(a, a.work) for a in arrivals if a.ended and a.work is not None and a.spec.is_command == kind]
    return [
        [work for a, work in known if (a.user, a.spec.name) == (job.user, job.spec.name)],
        [work for a, work in known if a.spec_key == job.spec_key],
        [work for a, work in known if a.spec.team == job.spec.team],
    ]


class Arrivals:
    """Jobs to come: like those that came of late, at the rate of late. None where too few have come to tell, and at
    most MOST_TIMES as many: a burst that came at once does not go on for ever."""

    def __init__(self, past: Sequence[Arrival], now_us: int, seed: int) -> None:
        self._chance = random.Random(f"{seed}/arrivals")
        window = self._chance.choice(NEWEST_ARRIVALS)
        times = [*sorted(one.submitted_us for one in past)[-window:], now_us]
        self._gaps = [later - earlier for earlier, later in pairwise(times)]
        self._past = past if len(past) >= LEAST_ARRIVALS else ()
        self._at = now_us
        self.next_us: int | None = None
        self._count = 0
        self._draw()

    def _draw(self) -> None:
        self.next_us = None
        if self._count < MOST_TIMES * len(self._past):
            self._at += max(1, self._chance.choice(self._gaps))
            self.next_us = self._at

    def pop(self) -> tuple[Arrival, JobSpec]:
        """The job that comes next, and its file as it can be submitted once more."""
        one, comes_us = self._chance.choice(self._past), self._at
        self._count += 1
        self._draw()
        spec = msgspec.structs.replace(
            one.spec, after=(), array=(), begin_us=None, deadline_us=_moved(one, comes_us),
            checkpoint=self._apart(one.spec),
        )
        return one, spec

    def _apart(self, spec: JobSpec) -> CheckpointSpec | None:
        """No two jobs save in one directory."""
        old = spec.checkpoint
        return msgspec.structs.replace(old, dir=f"{old.dir}/imagined-{self._count}") if old is not None else None


def _moved(one: Arrival, comes_us: int) -> int | None:
    """As far from when it comes as that of its model was."""
    deadline_us = one.spec.deadline_us
    return comes_us + deadline_us - one.submitted_us if deadline_us is not None else None
