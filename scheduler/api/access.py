"""Who asks, and what they may see: bearer tokens; another team's job does not exist for a user."""

from typing import Annotated, Protocol

from fastapi import Depends, Request

from scheduler.api.cluster import Cluster
from scheduler.core.errors import Code, JctError
from scheduler.core.story import Story, story_of
from scheduler.store.tokens import Role, Token


class FindsTokens(Protocol):
    def find(self, secret: str, now_us: int) -> Token | None: ...


def cluster(request: Request) -> Cluster:
    found: Cluster = request.app.state.cluster
    return found


def caller(request: Request) -> Token:
    """Raises JctError NOT_LOGGED_IN, in the same words for every kind of bad token."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    found = None
    if scheme.lower() == "bearer" and secret:
        tokens: FindsTokens = request.app.state.tokens
        found = tokens.find(secret.strip(), cluster(request).now_us())
    if found is None:
        raise JctError(
            Code.NOT_LOGGED_IN, "this needs a valid token", hint="set JCT_TOKEN, or ask an admin for a token"
        )
    return found


ClusterDep = Annotated[Cluster, Depends(cluster)]
CallerDep = Annotated[Token, Depends(caller)]


def team_seen(token: Token) -> str | None:
    """The only team whose jobs the caller may see; None for all."""
    return None if token.role is Role.ADMIN else token.team


async def visible_story(cluster: Cluster, token: Token, id: int) -> Story:
    """The job, from memory or history. NOT_FOUND also for another team's: its existence is none of the caller's."""
    job = cluster.state.jobs.get(id)
    story = story_of(cluster.state, job) if job is not None else await cluster.story(id)
    if story is None or team_seen(token) not in (None, story.job.spec.team):
        raise JctError(Code.NOT_FOUND, f"there is no job {id}", hint="list yours with: jct ls -a")
    return story
