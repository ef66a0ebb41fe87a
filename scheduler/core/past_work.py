"""How much work finished jobs took, in device-seconds, by who ran them: what jobs of unknown length are judged by."""

import re
from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field

from policies.jct.gittins import FEWEST
from scheduler.core.entities import Attempt, AttemptKind, Job, JobState, Result
from scheduler.core.state import State, Took

MOST = 100

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PastWork:
    """Lengths of finished jobs, ascending, by group: user, team and name; team; all."""

    lengths: dict[Group, list[float]] = field(default_factory=lambda: defaultdict(list))
    _told: dict[Group, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> "PastWork":
        """Of all jobs in memory that have completed. What each took is worked out once."""
        for job in state.jobs.values():
            if job.state is JobState.DONE and job.result is Result.COMPLETED and job.id not in state.took:
                gpu_s = attained_gpu_s(state, attempts_of(state, job), job.ended_us or 0)
                state.took[job.id] = Took(job.user, job.spec.team, job.spec.name, gpu_s)
        found = cls()
        for took in state.took.values():
            for group in _groups(took.user, took.team, took.name):
                insort(found.lengths[group], took.gpu_s)
        return found

    def like(self, job: Job) -> tuple[float, ...]:
        """Of the closest group that has enough of them; empty where none has."""
        groups = _groups(job.user, job.spec.team, job.spec.name)
        group = next((group for group in groups if len(self.lengths.get(group, ())) >= FEWEST), None)
        if group is None:
            return ()
        if group not in self._told:
            self._told[group] = _thinned(self.lengths[group])
        return self._told[group]


def _thinned(lengths: list[float]) -> tuple[float, ...]:
    """At most MOST of them, evenly spread: each waiting job carries them to the policy."""
    if len(lengths) <= MOST:
        return tuple(lengths)
    return tuple(lengths[(2 * k + 1) * len(lengths) // (2 * MOST)] for k in range(MOST))


def _groups(user: str, team: str, name: str) -> tuple[Group, ...]:
    """Closest first. Numbers in a name do not matter: they count runs."""
    return (user, team, re.sub(r"\d+", "#", name)), (team,), ()


def attempts_of(state: State, job: Job) -> list[Attempt]:
    """The job's attempts that are in memory and no probes, oldest first."""
    found = (state.attempts.get((job.id, number)) for number in range(1, job.last_attempt + 1))
    return [attempt for attempt in found if attempt is not None and attempt.kind is not AttemptKind.PROBE]


def attained_gpu_s(state: State, attempts: list[Attempt], now: int) -> float:
    """Device-seconds held, from the moment a gang was whole to its end, as if it always had its last shape."""
    total = 0
    for attempt in attempts:
        if attempt.starting_us is not None:
            until = attempt.ended_us if attempt.ended_us is not None else now
            total += len(state.present_members(attempt.job, attempt.number)) * (until - attempt.starting_us)
    return total / 1e6
