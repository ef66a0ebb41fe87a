"""All that is known of one job, in memory or from the database: what a person is shown."""

from dataclasses import dataclass

from scheduler.core.entities import Attempt, Estimate, Generation, Job, Member
from scheduler.core.estimates import estimates_of
from scheduler.core.state import State, newest_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A job with its attempts, oldest first, their generations and members, and what was foreseen of it."""

    job: Job
    attempts: tuple[Attempt, ...] = ()
    generations: tuple[Generation, ...] = ()
    members: tuple[Member, ...] = ()
    estimates: tuple[Estimate, ...] = ()

    def shape_of(self, attempt: int) -> Generation | None:
        """The generation that runs, or the last that ran; of an attempt that starts its first."""
        return newest_shape([one for one in self.generations if one.attempt == attempt])


def story_of(state: State, job: Job) -> Story:
    """From memory."""
    attempts = [state.attempts[job.id, n] for n in range(1, job.last_attempt + 1) if (job.id, n) in state.attempts]
    generations = [one for attempt in attempts for one in state.generations_of(job.id, attempt.number)]
    members = [member for attempt in attempts for member in state.members_of(job.id, attempt.number)]
    return Story(
        job=job,
        attempts=tuple(attempts),
        generations=tuple(generations),
        members=tuple(members),
        estimates=estimates_of(state, job.id),
    )
