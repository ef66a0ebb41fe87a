"""Tokens over REST: made once and shown once, listed without their secrets, revoked.

Nobody can give more than they have: users make tokens for themselves, leads for their team, admins for everybody.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried
from scheduler.api.answers import MAX_ID, Body, Plain, answer
from scheduler.api.rehearsal import TRIED
from scheduler.api.shapes import TokenList, TokenView
from scheduler.api.times import rfc3339
from scheduler.core.errors import Code, JctError
from scheduler.core.settings import us
from scheduler.jobfile.fields import Name, Seconds
from scheduler.store.tokens import Role, Token, Tokens

router = APIRouter(prefix="/tokens", tags=["tokens"])


class NewToken(Body):
    """user and team: the caller's own where left out. expires_in: a duration; null for never."""

    name: Name
    user: Name | None = None
    team: Name | None = None
    role: Annotated[Role, Field(strict=False)] = Role.USER
    expires_in: Annotated[Seconds, Field(ge=1)] | None = None


def _tokens(request: Request) -> Tokens:
    found: Tokens = request.app.state.tokens
    return found


def _view(token: Token, secret: str | None = None) -> TokenView:
    return TokenView(
        id=token.id, name=token.name, user=token.user, team=token.team, role=token.role,
        created=rfc3339(token.created_us), expires=rfc3339(token.expires_us), revoked=rfc3339(token.revoked_us),
        secret=secret,
    )


def _rules(caller: Caller, token: Token | NewToken, user: str, team: str) -> bool:
    """Whether the caller may make, see or revoke such a token."""
    own = caller.token
    if own.role is Role.ADMIN:
        return True
    if own.role is Role.AGENT or token.role is Role.AGENT or team != own.team or token.role.rank > own.role.rank:
        return False
    return user == own.user or own.role is Role.LEAD


@router.post("", status_code=201, response_model=TokenView, responses=TRIED)
async def create(body: NewToken, request: Request, caller: CallerDep, _: CanBeTried) -> Response:
    """The secret is in this answer and nowhere else."""
    user, team = body.user or caller.user, body.team or caller.token.team
    if not _rules(caller, body, user, team):
        why = "you may make tokens for yourself or, as a lead, for your team, with no more rights than yours"
        await caller.deny("create token", f"user {user}", why)
    caller.only_tried()
    now = caller.cluster.now_us()
    expires = now + us(body.expires_in) if body.expires_in is not None else None
    secret, token = await asyncio.to_thread(
        _tokens(request).create, name=body.name, user=user, team=team, role=body.role, now_us=now, expires_us=expires
    )
    new = {"name": token.name, "user": user, "team": team, "role": token.role, "expires": rfc3339(expires)}
    await caller.record("create token", f"token {token.id}", new=new)
    return answer(_view(token, secret), 201)


@router.get("", response_model=TokenList)
async def list_all(request: Request, caller: CallerDep, _: Plain) -> Response:
    """Those that the caller may revoke."""
    seen = [token for token in _tokens(request).all() if _rules(caller, token, token.user, token.team)]
    return answer(TokenList(tokens=[_view(token) for token in seen]))


@router.delete("/{id}", status_code=204, response_class=Response, responses=TRIED)
async def revoke(
    id: Annotated[int, Path(ge=1, le=MAX_ID)], request: Request, caller: CallerDep, _: CanBeTried
) -> Response:
    """At once; streams that it opened are closed. Revoking twice is no error."""
    token = next((token for token in _tokens(request).all() if token.id == id), None)
    if token is None or not _rules(caller, token, token.user, token.team):
        if token is not None:
            await caller.record("revoke token", f"token {id}", allowed=False)
        raise JctError(Code.NOT_FOUND, f"there is no token {id}")
    caller.only_tried()
    await asyncio.to_thread(_tokens(request).revoke, id, caller.cluster.now_us())
    await caller.record("revoke token", f"token {id}", old={"name": token.name, "user": token.user})
    return Response(status_code=204)
