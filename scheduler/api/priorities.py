"""A job's place in the queue, over REST: every term that the policy in force adds up, and where that puts the job."""

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import Response

from policies.jct.terms import Term, sums
from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import JobId, Plain, answer
from scheduler.api.foresight_shapes import PrioView, RankView, TermView
from scheduler.api.ranges import NEVER
from scheduler.core.entities import Job, JobState, Wanted
from scheduler.core.errors import Code, JctError
from scheduler.core.shown import shown_state
from scheduler.core.state import State
from scheduler.core.story import Story

router = APIRouter(tags=["foresight"])

Order = tuple[tuple[float, ...], float, int]


@router.get("/jobs/{id}/prio", response_model=PrioView)
async def prio(id: JobId, caller: CallerDep, _: Plain) -> Response:
    """Asked of the policy itself, so that it cannot say anything else than it does."""
    story = await caller.story(id, "prio")
    if story.job.state is JobState.DONE:
        raise JctError(Code.CONFLICT, f"job {id} has already ended ({story.job.result}), so it has no place")
    return answer(_view(story, await caller.cluster.forecasts.terms(), caller))


def _view(story: Story, found: dict[int, tuple[Term, ...]], caller: Caller) -> PrioView:
    job, state = story.job, caller.cluster.state
    waiting = [one for one in state.jobs.values() if one.id in found and _waits(one) and _competes(one, job)]
    before = sum(_place(other, found) < _place(job, found) for other in waiting) if _waits(job) else None
    return PrioView(
        job=job.id, state=shown_state(job, story.attempts, state.progress.get(job.id)),
        policy=caller.cluster.forecasts.policy, ranks=list(_ranks(state, job, found.get(job.id, ()))),
        position=before + 1 if before is not None else None, waiting=len(waiting),
    )  # fmt: skip


def _waits(job: Job) -> bool:
    return job.state is JobState.QUEUED and job.wanted is Wanted.RUN


def _competes(other: Job, job: Job) -> bool:
    """What cannot start in this cluster as it is stands before nobody."""
    return other.id == job.id or other.reason_code not in NEVER


def _place(job: Job, found: dict[int, tuple[Term, ...]]) -> Order:
    return tuple(-value for value in sums(found.get(job.id, ()))), float(job.place_us), job.id


def _ranks(state: State, job: Job, terms: tuple[Term, ...]) -> Iterator[RankView]:
    """The policy's one `priority` is told as what it comes from."""
    for rank in sorted({term.rank for term in terms}):
        same = [part for term in terms if term.rank == rank for part in _parts(state, job, term)]
        yield RankView(
            terms=[TermView(name=term.name, value=term.value) for term in same], sum=sum(term.value for term in same)
        )


def _parts(state: State, job: Job, term: Term) -> list[Term]:
    if term.name != "priority":
        return [term]
    team, queue = state.teams.get(job.spec.team), state.queues.get(job.spec.queue)
    own = Term("priority of the job", float(job.priority), term.rank)
    more = [(f"of team {job.spec.team}", team), (f"of queue {job.spec.queue}", queue)]
    return [own, *(Term(name, float(record.priority if record else 0), term.rank) for name, record in more)]
