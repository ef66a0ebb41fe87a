"""How long a job may wait before it comes before all others."""

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
    its nodes have ended or have settled, after the starved jobs before it."""
    return patience.seconds + patience.runs * fastest_s


def starves(patience: Patience, work: Work) -> bool:
    """Whether a waiting job has waited for longer."""
    fastest_s = min(work.takes_s(option) for option in work.options)
    waited_s = work.job.since_change_s if work.job.attained_gpu_s else work.job.age_s
    return waited_s > waiting_bound_s(patience, fastest_s)
