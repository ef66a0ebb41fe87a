"""What was foreseen of jobs is kept once for each moment, so that it can be held against the truth."""

from scheduler.core.entities import Estimate, JobState, Moment
from scheduler.core.events import Estimated
from scheduler.core.state import State
from scheduler.core.turn import Turn


def keep(turn: Turn, event: Estimated) -> None:
    """The first of its moment counts; later ones, and those of jobs that have ended, are dropped."""
    for estimate in event.estimates:
        job = turn.state.jobs.get(estimate.job)
        lacks = (estimate.job, estimate.moment) not in turn.state.estimates
        if job is not None and job.state is not JobState.DONE and lacks:
            turn.put(estimate)


def missing(state: State, job: int, moment: Moment) -> bool:
    """Whether an estimate of this moment is still wanted."""
    return (job, moment) not in state.estimates


def estimates_of(state: State, job: int) -> tuple[Estimate, ...]:
    """Oldest first."""
    found = (state.estimates.get((job, moment)) for moment in Moment)
    return tuple(estimate for estimate in found if estimate is not None)
