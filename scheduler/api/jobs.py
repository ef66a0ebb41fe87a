"""Jobs over REST: submit, list, show, change, cancel, hold, release."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import CallerDep, ClusterDep, team_seen, visible_story
from scheduler.api.answers import MAX_LIMIT, JobId, Plain, Strict, answer
from scheduler.api.cluster import Cluster
from scheduler.api.paging import from_cursor, page
from scheduler.api.shapes import JobPage, JobView
from scheduler.api.times import rfc3339
from scheduler.api.views import Moment, job_summary, job_view
from scheduler.core.entities import JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.shown import ENDED_STATES, LIVE_STATES
from scheduler.jobfile import parse_document
from scheduler.jobfile.fields import Priority, is_control
from scheduler.jobfile.key import spec_key
from scheduler.protocol.spec import JobSpec
from scheduler.store.tokens import Role, Token

router = APIRouter(prefix="/jobs", tags=["jobs"])


class Submission(Strict):
    """job: the job file as JSON, its workdir absolute. spec_key: what the CLI computed of the code it saw."""

    job: dict[str, Any]
    spec_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class Change(Strict):
    """What is named is changed; nothing else can be yet."""

    priority: Priority


class Cancellation(Strict):
    reason: Annotated[str, Field(max_length=500)] = ""


class Listing(Strict):
    """Without `state`, jobs that have not ended; with `all`, those that have too."""

    team: str | None = None
    state: Annotated[list[str], Field(default_factory=list)]
    all: bool = False
    cursor: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100


IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


@router.post("", status_code=201, response_model=JobView)
async def submit(
    submission: Submission, cluster: ClusterDep, token: CallerDep, _: Plain, idempotency_key: IdempotencyKey = None
) -> Response:
    """A new job. With an Idempotency-Key, trying again is safe: the same job is answered."""
    spec = parse_document({"team": token.team, **submission.job})
    if token.role is not Role.ADMIN and spec.team != token.team:
        raise JctError(Code.NOT_ALLOWED, f"you may submit for team {token.team!r} only", field="team")
    key = submission.spec_key or spec_key(spec.entrypoint, spec.arguments, spec.global_batch, "")
    id = await cluster.submit(spec, key, token.user, idempotency_key)
    if idempotency_key is not None:
        await _same_as_before(cluster, token, id, spec)
    return answer(await _view(cluster, token, id), 201, {"Location": f"/v1/jobs/{id}"})


async def _same_as_before(cluster: Cluster, token: Token, id: int, spec: JobSpec) -> None:
    """One key, one job: another body under a used key is a mistake that must not pass silently."""
    story = await visible_story(cluster, token, id)
    if story.job.spec != spec:
        raise JctError(
            Code.CONFLICT, f"this idempotency key belongs to job {id}, which is another one", hint="use a new key"
        )


async def _view(cluster: Cluster, token: Token, id: int) -> JobView:
    story = await visible_story(cluster, token, id)
    return job_view(story, Moment.of(cluster.state, cluster.now_us()))


@router.get("", response_model=JobPage)
async def list_jobs(query: Annotated[Listing, Query()], cluster: ClusterDep, token: CallerDep) -> Response:
    """Newest first, in pages."""
    unknown = [state for state in query.state if state not in (*LIVE_STATES, *ENDED_STATES)]
    if unknown:
        hint = f"states are: {', '.join((*LIVE_STATES, *ENDED_STATES))}"
        raise JctError(Code.BAD_SPEC, f"there is no state {unknown[0][:40]!r}", field="state", hint=hint)
    before = from_cursor(query.cursor) if query.cursor is not None else None
    own = team_seen(token)
    if own is not None and query.team not in (None, own):
        return answer(JobPage(now=rfc3339(cluster.now_us()), jobs=[], next=None))
    stories, following = await page(
        cluster, team=own or query.team, states=query.state, with_ended=query.all, before=before, limit=query.limit
    )
    moment = Moment.of(cluster.state, cluster.now_us())
    return answer(
        JobPage(now=rfc3339(moment.now_us), jobs=[job_summary(story, moment) for story in stories], next=following)
    )


@router.get("/{id}", response_model=JobView)
async def show(id: JobId, cluster: ClusterDep, token: CallerDep, _: Plain) -> Response:
    return answer(await _view(cluster, token, id))


@router.patch("/{id}", response_model=JobView)
async def change(id: JobId, change: Change, cluster: ClusterDep, token: CallerDep, _: Plain) -> Response:
    await visible_story(cluster, token, id)
    await cluster.set_priority(id, change.priority, token.user)
    return answer(await _view(cluster, token, id))


@router.post("/{id}/cancel", response_model=JobView)
async def cancel(
    id: JobId, cluster: ClusterDep, token: CallerDep, _: Plain, cancellation: Cancellation | None = None
) -> Response:
    """In every state, as often as you like; the answer is the job as it stands then."""
    reason = cancellation.reason if cancellation else ""
    if any(map(is_control, reason)):
        raise JctError(Code.BAD_SPEC, "reason must not hold control characters", field="reason")
    story = await visible_story(cluster, token, id)
    if story.job.state is not JobState.DONE:
        await cluster.cancel(id, token.user, reason)
    return answer(await _view(cluster, token, id))


@router.post("/{id}/hold", response_model=JobView)
async def hold(id: JobId, cluster: ClusterDep, token: CallerDep, _: Plain) -> Response:
    """Keep it from running; one that runs is checkpointed and stopped."""
    await visible_story(cluster, token, id)
    await cluster.hold(id, token.user)
    return answer(await _view(cluster, token, id))


@router.post("/{id}/release", response_model=JobView)
async def release(id: JobId, cluster: ClusterDep, token: CallerDep, _: Plain) -> Response:
    await visible_story(cluster, token, id)
    await cluster.release(id, token.user)
    return answer(await _view(cluster, token, id))
