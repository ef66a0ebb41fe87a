"""Who did what, and who used how much."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import CallerDep
from scheduler.api.answers import MAX_ID, MAX_LIMIT, Plain, Strict, answer
from scheduler.api.shapes import AuditPage, AuditView, UsageList, UsageRow
from scheduler.api.times import rfc3339
from scheduler.core.accounts import decayed
from scheduler.store.audit import Audit, AuditEntry
from scheduler.store.tokens import Role

router = APIRouter(tags=["accounting"])


class AuditQuery(Strict):
    before: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100


@router.get("/audit", response_model=AuditPage)
async def audit(query: Annotated[AuditQuery, Query()], request: Request, caller: CallerDep) -> Response:
    """Every admin act and every denied act, newest first; for admins."""
    await caller.at_least(Role.ADMIN, "read audit", "audit log")
    log: Audit = request.app.state.audit
    found = await asyncio.to_thread(log.newest, query.limit, query.before)
    following = found[-1].id if len(found) == query.limit else None
    return answer(AuditPage(entries=[_audit_view(entry) for entry in found], next=following))


def _audit_view(entry: AuditEntry) -> AuditView:
    return AuditView(
        id=entry.id or 0, time=rfc3339(entry.time_us), actor=entry.actor, action=entry.action, target=entry.target,
        allowed=entry.allowed, old=entry.old, new=entry.new, request=entry.request,
    )


@router.get("/usage", response_model=UsageList)
async def usage(caller: CallerDep, _: Plain) -> Response:
    """By team and user; of the caller's team, or of all for operators. A job's own is in its view."""
    now, half_life_s = caller.cluster.now_us(), caller.cluster.half_life_s
    rows = [
        UsageRow(
            team=account.team, user=account.user, gpu_s=account.gpu_s, lost_gpu_s=account.lost_gpu_s,
            recent_gpu_s=decayed(account, now, half_life_s),
        )
        for account in caller.cluster.state.accounts.values()
        if caller.team_seen in (None, account.team)
    ]
    return answer(UsageList(rows=rows))
