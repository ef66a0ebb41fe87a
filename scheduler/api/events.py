"""Events over REST: of one job, or of the cluster, from a cursor on."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import CallerDep, ClusterDep, team_seen, visible_story
from scheduler.api.answers import MAX_ID, MAX_LIMIT, JobId, Strict, answer
from scheduler.api.shapes import EventPage
from scheduler.api.views import event_view

router = APIRouter(tags=["events"])


class EventQuery(Strict):
    after: Annotated[int, Field(ge=0, le=MAX_ID)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100


Events = Annotated[EventQuery, Query()]


@router.get("/jobs/{id}/events", response_model=EventPage)
async def job_events(id: JobId, query: Events, cluster: ClusterDep, token: CallerDep) -> Response:
    """Oldest first."""
    await visible_story(cluster, token, id)
    found = await cluster.events(id, query.after, query.limit)
    following = found[-1].seq if found else query.after
    return answer(EventPage(events=[event_view(event) for event in found], next=following))


@router.get("/events", response_model=EventPage)
async def events(query: Events, cluster: ClusterDep, token: CallerDep) -> Response:
    """Oldest first. A user sees those of the team's jobs that are in memory; an admin sees all."""
    found = await cluster.events(None, query.after, query.limit)
    following = found[-1].seq if found else query.after
    team = team_seen(token)
    if team is not None:
        jobs = cluster.state.jobs
        found = [event for event in found if event.job in jobs and jobs[event.job].spec.team == team]
    return answer(EventPage(events=[event_view(event) for event in found], next=following))
