"""How much of a job is left, and what each way of doing it takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from policies.jct.curve import options_of
from policies.jct.gittins import expected_remaining
from policies.jct.problem import JobDemand, Option, Problem

UNSEEN_GPU_S = 600.0
"""Device-seconds that a job of unknown length is thought to need before it has run."""


@dataclass(slots=True)
class Work:
    """A job in one pass. steps: remaining, known or expected. current: the option it runs; None while it waits, or
    where its menu does not have what it runs: then it is left alone."""

    job: JobDemand
    options: tuple[Option, ...]
    steps: float
    current: Option | None
    known: bool

    def takes_s(self, option: Option) -> float:
        """Seconds to the end after a change to this option."""
        return option.restart_s + self.job.change_loses_s + self.steps * option.step_time_s

    @property
    def left_s(self) -> float:
        """Seconds to the end if a running job keeps what it has, and whoever slows it stays."""
        assert self.current is not None
        starting = max(0.0, self.current.restart_s - self.job.since_change_s)
        return starting + self.steps * self.current.step_time_s * self.job.slowdown

    @property
    def least_gpu_s(self) -> float:
        """Device-seconds of the cheapest way to its end (FORMULAS B5.2: a start is paid by all of its devices)."""
        return min(option.devices * self.takes_s(option) for option in self.options)


def wanted(work: Work) -> int:
    """Devices that a job holds, or the least that it needs."""
    return work.job.devices or min((option.devices for option in work.options), default=0)


def look_at(job: JobDemand, kinds: Mapping[str, str]) -> Work:
    """Work that nobody has declared is expected from what jobs like it took, and grows with what the job has had.

    kinds: of each node's devices.
    """
    options = options_of(job)
    current = running_option(job, kinds) if job.placement else None
    if job.remaining_steps is not None:
        return Work(job, options, job.remaining_steps, current, True)
    cheapest = min((option.devices * option.step_time_s for option in options), default=1.0)
    steps = expected_remaining(job.past_gpu_s, job.attained_gpu_s, UNSEEN_GPU_S) / cheapest
    return Work(job, options, steps, current, False)


def running_option(job: JobDemand, kinds: Mapping[str, str]) -> Option | None:
    """The menu's row of what a job holds."""
    shape = tuple(job.placement.values())
    kind = kinds.get(next(iter(job.placement)), "")
    same = [o for o in job.menu if o.plan == job.plan and o.devices == sum(shape) and o.kind == kind]
    exact = [option for option in same if not option.per_node or sorted(option.per_node) == sorted(shape)]
    return min(exact or same, key=lambda option: option.step_time_s, default=None)


def settles_s(job: JobDemand, current: Option, restarts: float) -> float:
    """How long a running job is still left alone after its last change: for so many times as long as a restart takes
    it."""
    return restarts * current.restart_s - job.since_change_s


def settles_in_s(problem: Problem, restarts: float) -> float:
    """Of the running jobs left alone now, when the first may be changed again; infinite where there is none."""
    kinds = {node.id: node.kind for node in problem.nodes}
    running = [job for job in problem.jobs if job.placement and not job.frozen]
    rows = ((job, running_option(job, kinds)) for job in running)
    left_s = (settles_s(job, current, restarts) for job, current in rows if current is not None)
    return min((seconds for seconds in left_s if seconds > 0.0), default=math.inf)
