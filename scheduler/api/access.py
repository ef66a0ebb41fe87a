"""Who asks, and what they may see: bearer tokens; another team's job does not exist for a user."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, Protocol

from fastapi import Depends, Request

from scheduler.api.cluster import Cluster
from scheduler.api.problems import request_id
from scheduler.api.rehearsal import Rehearsal, Rehearsed
from scheduler.core.errors import Code, JctError
from scheduler.core.story import Story, story_of
from scheduler.store.audit import AuditEntry
from scheduler.store.tokens import Role, Token
from scheduler.store.vault import Vault


class FindsTokens(Protocol):
    def find(self, secret: str, now_us: int) -> Token | None: ...

    def is_valid(self, token: Token, now_us: int) -> bool: ...


class KeepsAudit(Protocol):
    def append(self, entry: AuditEntry) -> None: ...


def cluster(request: Request) -> Cluster:
    found: Cluster = request.app.state.cluster
    return found


ClusterDep = Annotated[Cluster, Depends(cluster)]


@dataclass(slots=True)
class Caller:
    """The bearer of a valid token, within one request. tries: what it asks for is not done, see `rehearsal`."""

    token: Token
    cluster: Cluster
    audit: KeepsAudit
    vault: Vault
    tokens: FindsTokens
    request: str
    tries: bool = False

    def try_only(self) -> None:
        """From now on."""
        self.tries, self.cluster = True, Rehearsal.of(self.cluster, self)

    def only_tried(self) -> None:
        """For acts that move no job: raises Rehearsed instead of acting, where they are only tried."""
        if self.tries:
            raise Rehearsed(self, ())

    @property
    def user(self) -> str:
        return self.token.user

    def still_valid(self) -> bool:
        """Whether the token has been neither revoked nor outlived since the request began."""
        return self.tokens.is_valid(self.token, self.cluster.now_us())

    @property
    def team_seen(self) -> str | None:
        """The only team whose jobs the caller may see; None for all."""
        if self.token.role is Role.AGENT:
            return ""
        return None if self.token.role.rank >= Role.OPERATOR.rank else self.token.team

    async def at_least(self, role: Role, action: str, target: str) -> None:
        """Raises JctError NOT_ALLOWED, audited, for lesser roles."""
        if self.token.role.rank < role.rank:
            await self.deny(action, target, f"this needs the role {role}; yours is {self.token.role}")

    async def deny(self, action: str, target: str, why: str) -> NoReturn:
        """Raises JctError NOT_ALLOWED; the audit log keeps it."""
        await self.record(action, target, allowed=False)
        raise JctError(Code.NOT_ALLOWED, why, hint="ask a team lead, an operator or an admin")

    async def to_act_on(self, id: int, action: str) -> Story:
        """The job, where the caller may act on it: its owner, a lead of its team, operators and admins."""
        story = await self.story(id, action)
        role, job = self.token.role, story.job
        if role.rank < Role.USER.rank:
            await self.deny(action, f"job {id}", f"a {role} may look, and act on nothing")
        if role is Role.USER and job.user != self.user:
            await self.deny(action, f"job {id}", f"job {id} belongs to {job.user!r} of your team")
        return story

    async def story(self, id: int, action: str) -> Story:
        """The job, from memory or history. NOT_FOUND also for another team's: its existence is none of the caller's.

        action: what is wanted of it, for the audit of a denial.
        """
        job = self.cluster.state.jobs.get(id)
        story = story_of(self.cluster.state, job) if job is not None else await self.cluster.story(id)
        denied = story is not None and self.team_seen not in (None, story.job.spec.team)
        if denied:
            await self.record(action, f"job {id}", allowed=False)
        if story is None or denied:
            raise JctError(Code.NOT_FOUND, f"there is no job {id}", hint="list yours with: jct ls -a")
        return story

    async def record(self, action: str, target: str, *, allowed: bool = True, old: Any = None, new: Any = None) -> None:
        """Into the audit log, durably, off the daemon's one thread."""
        entry = AuditEntry(
            time_us=self.cluster.now_us(),
            actor=self.user,
            action=action,
            target=target,
            allowed=allowed,
            old=old,
            new=new,
            request=self.request,
        )
        await asyncio.to_thread(self.audit.append, entry)


def caller(request: Request) -> Caller:
    """Raises JctError NOT_LOGGED_IN, in the same words for every kind of bad token."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    tokens: FindsTokens = request.app.state.tokens
    known = scheme.lower() == "bearer" and secret
    token = tokens.find(secret.strip(), cluster(request).now_us()) if known else None
    if token is None:
        raise JctError(Code.NOT_LOGGED_IN, "this needs a valid token", hint="set JCT_TOKEN, or ask an admin for one")
    state = request.app.state
    return Caller(token, cluster(request), state.audit, state.vault, tokens, request_id(request))


CallerDep = Annotated[Caller, Depends(caller)]
