"""Events over REST: of one job, or of the cluster, from a cursor on."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import CallerDep
from scheduler.api.answers import MAX_ID, MAX_LIMIT, JobId, Strict, answer
from scheduler.api.shapes import EventPage
from scheduler.api.streams import LastEventId, WantsStream, event_stream
from scheduler.api.views import event_view

router = APIRouter(tags=["events"])


class EventQuery(Strict):
    after: Annotated[int, Field(ge=0, le=MAX_ID)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100


Events = Annotated[EventQuery, Query()]


@router.get("/jobs/{id}/events", response_model=EventPage)
async def job_events(
    id: JobId, query: Events, caller: CallerDep, streams: WantsStream, last: LastEventId = None
) -> Response:
    """Oldest first. As a stream, it ends with the job."""
    await caller.story(id, "events")
    if streams:
        return event_stream(caller, id, query.after if last is None else last)
    found = await caller.cluster.events(id, query.after, query.limit)
    following = found[-1].seq if found else query.after
    return answer(EventPage(events=[event_view(event) for event in found], next=following))


@router.get("/events", response_model=EventPage)
async def events(query: Events, caller: CallerDep, streams: WantsStream, last: LastEventId = None) -> Response:
    """Oldest first. A user sees those of the team's jobs that are in memory; an operator sees all.

    As a stream, it goes on with what is new.
    """
    if streams:
        start = query.after or caller.cluster.ring.newest
        return event_stream(caller, None, start if last is None else last)
    found = await caller.cluster.events(None, query.after, query.limit)
    following = found[-1].seq if found else query.after
    team = caller.team_seen
    if team is not None:
        jobs = caller.cluster.state.jobs
        found = [event for event in found if event.job in jobs and jobs[event.job].spec.team == team]
    return answer(EventPage(events=[event_view(event) for event in found], next=following))
