"""Webhooks over REST: made by admins for everything, by team leads for their team's jobs; the secret is shown once."""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import AfterValidator, Field

from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried
from scheduler.api.answers import MAX_ID, Body, Plain, answer
from scheduler.api.rehearsal import TRIED
from scheduler.api.shapes import WebhookList, WebhookView
from scheduler.api.times import rfc3339
from scheduler.core.errors import Code, JctError
from scheduler.jobfile.fields import Name
from scheduler.jobfile.urls import check_url
from scheduler.store.tokens import Role
from scheduler.store.webhooks import GROUPS, Webhook

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

_KIND = re.compile(r"[A-Z][A-Za-z]{1,63}")


def _event(value: str) -> str:
    if value not in GROUPS and not _KIND.fullmatch(value):
        raise ValueError(f"must be one of {', '.join(GROUPS)}, or a kind of event such as Ended")
    return value


class NewWebhook(Body):
    """team: whose jobs it is told of; a lead's own where left out, and for admins everything. events: job, node,
    daemon, or kinds such as Ended; all that it may have where left out."""

    name: Name
    url: Annotated[str, Field(max_length=2_000), AfterValidator(check_url)]
    team: Name | None = None
    events: Annotated[list[Annotated[str, AfterValidator(_event)]], Field(min_length=1, max_length=100)] | None = None


def _may(caller: Caller, team: str | None) -> bool:
    token = caller.token
    return token.role is Role.ADMIN or (token.role is Role.LEAD and team == token.team)


@router.post("", status_code=201, response_model=WebhookView, responses=TRIED)
async def create(body: NewWebhook, caller: CallerDep, _: CanBeTried) -> Response:
    """It is told of what happens from now on. The secret is in this answer and nowhere else."""
    team = caller.token.team if body.team is None and caller.token.role is Role.LEAD else body.team
    if not _may(caller, team):
        why = "webhooks are made by admins, and by team leads for their own team"
        await caller.deny("create webhook", f"webhook {body.name}", why)
    if team is not None and {"node", "daemon"}.intersection(body.events or ()):
        raise JctError(Code.BAD_SPEC, "a team's webhook is told of the team's jobs only", field="events")
    events = tuple(dict.fromkeys(body.events or (GROUPS if team is None else ("job",))))
    caller.only_tried()
    cluster = caller.cluster
    secret, made = await asyncio.to_thread(
        cluster.webhooks.create, name=body.name, url=body.url, team=team, events=events, by=caller.user,
        now_us=cluster.now_us(), cursor=cluster.state.counters.event - 1,
    )  # fmt: skip
    await caller.record("create webhook", f"webhook {made.id}", new=_audited(made))
    return answer(_view(caller, made, secret), 201)


@router.get("", response_model=WebhookList)
async def list_all(caller: CallerDep, _: Plain) -> Response:
    """Those that the caller may remove."""
    seen = [webhook for webhook in caller.cluster.webhooks.all() if _may(caller, webhook.team)]
    return answer(WebhookList(webhooks=[_view(caller, webhook) for webhook in seen]))


@router.delete("/{id}", status_code=204, response_class=Response, responses=TRIED)
async def remove(id: Annotated[int, Path(ge=1, le=MAX_ID)], caller: CallerDep, _: CanBeTried) -> Response:
    """Nothing more is sent; a delivery that is under way may still arrive."""
    webhook = caller.cluster.webhooks.find(id)
    if webhook is None or not _may(caller, webhook.team):
        if webhook is not None:
            await caller.record("remove webhook", f"webhook {id}", allowed=False)
        raise JctError(Code.NOT_FOUND, f"there is no webhook {id}")
    caller.only_tried()
    await asyncio.to_thread(caller.cluster.webhooks.remove, id)
    await caller.record("remove webhook", f"webhook {id}", old=_audited(webhook))
    return Response(status_code=204)


def _audited(webhook: Webhook) -> dict[str, object]:
    return {"name": webhook.name, "url": webhook.url, "team": webhook.team, "events": list(webhook.events)}


def _view(caller: Caller, webhook: Webhook, secret: str | None = None) -> WebhookView:
    cluster = caller.cluster
    return WebhookView(
        id=webhook.id, name=webhook.name, url=webhook.url, team=webhook.team, events=list(webhook.events),
        by=webhook.by, created=rfc3339(webhook.created_us), secret=secret,
        behind=max(0, cluster.state.counters.event - 1 - webhook.cursor), failing_since=rfc3339(webhook.failing_us),
        trouble=cluster.webhooks.trouble.get(webhook.id),
    )
