"""How long a job may wait before it comes before all others."""

import math
from dataclasses import dataclass

from policies.jct.work import Work


@dataclass(frozen=True, slots=True)
class Patience:
    """A job may wait for so many seconds, and so many times as long as it would run, in one stretch."""

    seconds: float = 14_400.0
    runs: float = 4.0


PATIENCE = Patience()


def waiting_bound_s(patience: Patience, fastest_s: float) -> float:
    """The longest that a job waits in one stretch before it comes before all others; it then starts once the jobs on
    its nodes have ended or have settled, after the jobs that are, or were at their start, more overdue."""
    return patience.seconds + patience.runs * fastest_s


def overdue_s(patience: Patience, work: Work) -> float:
    """How much longer than its bound a waiting job has waited; negative while it is within it. Of several that are
    beyond it the most overdue comes first: that order stays as it is while they wait, and of jobs that came together
    the shortest is the first."""
    fastest_s = min(work.takes_s(option) for option in work.options)
    waited_s = work.job.since_change_s if work.job.attained_gpu_s else work.job.age_s
    return waited_s - waiting_bound_s(patience, fastest_s)


def overdue_since_start_s(patience: Patience, work: Work) -> float:
    """The same for a running job, as if it still waited; negative for one that started within its bound, or that was
    changed since, when it is not known any more how long it waited."""
    if work.job.restarts:
        return -math.inf
    waited_s = work.job.age_s - work.job.since_change_s
    late_s = waited_s - waiting_bound_s(patience, work.left_s + work.job.since_change_s)
    return late_s + work.job.since_change_s if late_s > 0 else late_s


def starves(patience: Patience, work: Work) -> bool:
    """Whether a waiting job has waited for longer."""
    return overdue_s(patience, work) > 0.0
