"""Jobs over REST: submit, list, show, change, cancel, hold, release."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried, IfMatch, etag
from scheduler.api.answers import MAX_LIMIT, Body, JobId, Plain, Strict, answer
from scheduler.api.foresight_shapes import WhatIf
from scheduler.api.paging import from_cursor, page
from scheduler.api.shapes import JobPage, JobView
from scheduler.api.submitting import admit, allowed_priority, check_queue, check_secrets, past_parents, same
from scheduler.api.times import rfc3339
from scheduler.api.views import Moment, job_summary, job_view
from scheduler.core.edits import version_of
from scheduler.core.entities import Job, JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Change as ChangeJob
from scheduler.core.shown import ENDED_STATES, LIVE_STATES
from scheduler.core.story import Story
from scheduler.jobfile import parse_document
from scheduler.jobfile.fields import Name, PriorityOrClass, Text, is_control
from scheduler.jobfile.key import spec_key
from scheduler.jobfile.model import MAX_SECRETS, NewSize
from scheduler.jobfile.ordering import Moment as Begin
from scheduler.jobfile.ordering import TimeLimit
from scheduler.protocol.spec import JobSpec
from scheduler.store.tokens import Role

router = APIRouter(prefix="/jobs", tags=["jobs"])


class Submission(Body):
    """job: the job file as JSON, its workdir absolute. spec_key: what the CLI computed of the code it saw. secrets:
    values of the variables that env_from names; they are stored encrypted and shown nowhere.
    """

    job: dict[str, Any]
    spec_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    secrets: dict[str, str] = Field(default_factory=dict, max_length=MAX_SECRETS, repr=False)


class Change(Body):
    """What is named is changed; null clears time_limit and begin. begin only while the job waits, as gpus of a
    command; a training that runs takes its new size on."""

    priority: PriorityOrClass | None = None
    team: Name | None = None
    queue: Name | None = None
    time_limit: TimeLimit | None = None
    begin: Begin | None = None
    gpus: NewSize = None
    note: Annotated[Text, Field(max_length=2_000)] | None = None


class Cancellation(Body):
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
    submission: Submission, caller: CallerDep, _: Plain, idempotency_key: IdempotencyKey = None
) -> Response:
    """A new job. With an Idempotency-Key, trying again is safe: the same job is answered."""
    spec = await admit(caller, parse_document({"team": caller.token.team, **submission.job}))
    check_secrets(spec, submission.secrets)
    past = await past_parents(caller, spec)
    unseen_code = f"below {spec.workdir}"
    key = submission.spec_key or spec_key(spec.what_runs, spec.arguments, spec.global_batch, unseen_code)
    sealed = caller.vault.seal(submission.secrets) if submission.secrets else ""
    id = await caller.cluster.submit(spec, key, caller.user, idempotency_key, sealed, past)
    if idempotency_key is not None:
        await _same_as_before(caller, id, spec)
    return answer(await _view(caller, id), 201, {"Location": f"/v1/jobs/{id}"})


async def _same_as_before(caller: Caller, id: int, spec: JobSpec) -> None:
    """One key, one job: another body under a used key is a mistake that must not pass silently."""
    story = await caller.story(id, "submit")
    if not same(story.job, spec):
        message = f"this idempotency key belongs to job {id}, which is another one"
        raise JctError(Code.CONFLICT, message, hint="use a new key")


async def _view(caller: Caller, id: int) -> JobView:
    story = await caller.story(id, "show")
    return job_view(story, Moment.at(caller.cluster))


@router.get("", response_model=JobPage)
async def list_jobs(query: Annotated[Listing, Query()], caller: CallerDep) -> Response:
    """Newest first, in pages."""
    unknown = [state for state in query.state if state not in (*LIVE_STATES, *ENDED_STATES)]
    if unknown:
        hint = f"states are: {', '.join((*LIVE_STATES, *ENDED_STATES))}"
        raise JctError(Code.BAD_SPEC, f"there is no state {unknown[0][:40]!r}", field="state", hint=hint)
    before = from_cursor(query.cursor) if query.cursor is not None else None
    cluster, own = caller.cluster, caller.team_seen
    now = rfc3339(cluster.now_us())
    if own is not None and query.team not in (None, own):
        return answer(JobPage(now=now, jobs=[], next=None))
    team = query.team if own is None else own
    stories, following = await page(
        cluster, team=team, states=query.state, with_ended=query.all, before=before, limit=query.limit
    )
    moment = Moment.at(cluster)
    return answer(JobPage(now=now, jobs=[job_summary(story, moment) for story in stories], next=following))


@router.get("/{id}", response_model=JobView)
async def show(id: JobId, caller: CallerDep, _: Plain) -> Response:
    return _with_version(await caller.story(id, "show"), caller)


@router.patch("/{id}", response_model=JobView | WhatIf)
async def change(id: JobId, change: Change, caller: CallerDep, _: CanBeTried, expected: IfMatch) -> Response:
    """With If-Match, only if the job is still as its ETag says."""
    before = await caller.to_act_on(id, "change")
    changes = await _changes(caller, change, before.job)
    await caller.cluster.ask(
        lambda n: ChangeJob(request=n, job=id, actor=caller.user, changes=changes, expected=expected)
    )
    old = {name: before.job.priority if name == "priority" else getattr(before.job.spec, name) for name in changes}
    await caller.record("change", f"job {id}", old=old, new=changes)
    return _with_version(await caller.story(id, "show"), caller)


async def _changes(caller: Caller, change: Change, job: Job) -> dict[str, Any]:
    """New values by the core's names. Raises JctError where one is not allowed or cannot be null."""
    named = change.model_fields_set
    if not named:
        raise JctError(Code.BAD_SPEC, "name at least one field to change")
    for name in named - {"time_limit", "begin"}:
        if getattr(change, name) is None:
            raise JctError(Code.BAD_SPEC, f"{name} cannot be null", field=name)
    team = change.team or job.spec.team
    changes: dict[str, Any] = {name: getattr(change, name) for name in named & {"team", "queue", "note"}}
    if "team" in named and team != job.spec.team:
        await caller.at_least(Role.OPERATOR, "change team", f"job {job.id}")
    if named & {"team", "queue"}:
        await check_queue(caller, change.queue or job.spec.queue, team)
    if change.priority is not None:
        changes["priority"] = await allowed_priority(caller, change.priority, team)
    if "time_limit" in named:
        changes["time_limit_s"] = float(change.time_limit) if change.time_limit is not None else None
    if "begin" in named:
        changes["begin_us"] = change.begin
    if change.gpus is not None:
        changes |= change.gpus.counts
    return changes


def _with_version(story: Story, caller: Caller) -> Response:
    view = job_view(story, Moment.at(caller.cluster))
    return answer(view, headers=etag(version_of(story.job)))


@router.post("/{id}/cancel", response_model=JobView | WhatIf)
async def cancel(id: JobId, caller: CallerDep, _: CanBeTried, cancellation: Cancellation | None = None) -> Response:
    """In every state, as often as you like; the answer is the job as it stands then."""
    reason = cancellation.reason if cancellation else ""
    if any(map(is_control, reason)):
        raise JctError(Code.BAD_SPEC, "reason must not hold control characters", field="reason")
    story = await caller.to_act_on(id, "cancel")
    if story.job.state is not JobState.DONE:
        await caller.cluster.cancel(id, caller.user, reason)
        await _record_wanted(caller, story, "cancel")
    caller.only_tried()
    return answer(await _view(caller, id))


@router.post("/{id}/hold", response_model=JobView | WhatIf)
async def hold(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    """Keep it from running; one that runs is checkpointed and stopped."""
    story = await caller.to_act_on(id, "hold")
    await caller.cluster.hold(id, caller.user)
    await _record_wanted(caller, story, "hold")
    return answer(await _view(caller, id))


@router.post("/{id}/release", response_model=JobView | WhatIf)
async def release(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    story = await caller.to_act_on(id, "release")
    await caller.cluster.release(id, caller.user)
    await _record_wanted(caller, story, "release")
    return answer(await _view(caller, id))


async def _record_wanted(caller: Caller, before: Story, action: str) -> None:
    """What was wanted of the job before, and is now."""
    job = caller.cluster.state.jobs.get(before.job.id, before.job)
    await caller.record(action, f"job {job.id}", old={"wanted": before.job.wanted}, new={"wanted": job.wanted})
