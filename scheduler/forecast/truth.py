"""How foreseen ranges stood the truth: of jobs that have completed, as far as they are in memory."""

from collections import Counter
from collections.abc import Iterator

from scheduler.core.entities import Estimate, Job, Moment, Result
from scheduler.core.state import State
from scheduler.forecast.outlook import score

OUTCOMES = ("inside", "before", "after", "unknown")


def outcomes(state: State) -> Counter[str]:
    """How often the first range that a job got held its end, how often that came before or after, and how often a
    job ended before there was any range."""
    found = Counter(dict.fromkeys(OUTCOMES, 0))
    found.update(_outcome(job, one) for job, one in _judged(state))
    return found


def coverage(state: State) -> float | None:
    """Part of the completed jobs that ended in their range; an unknown one is a miss. None where none has ended."""
    found = outcomes(state)
    return found["inside"] / found.total() if found.total() else None


def scores(state: State) -> list[float]:
    """Of the newest jobs, oldest end first."""
    known = [(job.ended_us or 0, one) for job, one in _judged(state) if one is not None]
    known.sort(key=lambda pair: pair[0])
    return [score(one.made_us, one.mid_us, one.spread, ended_us) for ended_us, one in known]


def _judged(state: State) -> Iterator[tuple[Job, Estimate | None]]:
    for job in state.jobs.values():
        if job.result is Result.COMPLETED:
            yield job, state.estimates.get((job.id, Moment.SUBMIT))


def _outcome(job: Job, estimate: Estimate | None) -> str:
    ended_us = job.ended_us or 0
    if estimate is None:
        return "unknown"
    if ended_us < estimate.low_us:
        return "before"
    return "inside" if ended_us <= estimate.high_us else "after"
