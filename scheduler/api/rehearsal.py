"""Acts that are only tried (`dry_run=true`): checked like real ones up to the moment at which the core would be asked;
there they turn off, and the answer is what would change.

So a dry run cannot be allowed, or refused, where the act itself would not be.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from scheduler.api.answers import answer
from scheduler.api.cluster import Cluster
from scheduler.api.foresight_shapes import MovedView, TeamChangeView, WhatIf
from scheduler.api.problems import problem, request_id
from scheduler.api.ranges import UNKNOWN_WORK
from scheduler.api.times import rfc3339
from scheduler.core.errors import JctError
from scheduler.core.events import Cancel, Hold, Release
from scheduler.core.events import Request as CoreRequest
from scheduler.forecast.whatif import Comparison, Moved

if TYPE_CHECKING:
    from scheduler.api.access import Caller

TRIED: dict[int | str, dict[str, Any]] = {
    200: {"model": WhatIf, "description": "With dry_run: what it would change."}
}
"""For the document of routes that answer with another status when they act."""


class Rehearsed(Exception):
    """The act was allowed; these are the events it would have caused."""

    def __init__(self, caller: "Caller", events: tuple[CoreRequest, ...]) -> None:
        super().__init__("only tried")
        self.caller, self.events = caller, events


class Rehearsal:
    """A cluster that answers like the one behind it, and does nothing."""

    def __init__(self, cluster: Cluster, caller: "Caller") -> None:
        self._cluster, self._caller = cluster, caller

    @classmethod
    def of(cls, cluster: Cluster, caller: "Caller") -> Cluster:
        return cast(Cluster, cls(cluster, caller))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def ask(self, make: Callable[[int], CoreRequest]) -> int:
        raise Rehearsed(self._caller, (make(0),))

    async def cancel(self, job: int, actor: str, reason: str) -> None:
        raise Rehearsed(self._caller, (Cancel(request=0, job=job, actor=actor, reason=reason),))

    async def hold(self, job: int, actor: str) -> None:
        raise Rehearsed(self._caller, (Hold(request=0, job=job, actor=actor),))

    async def release(self, job: int, actor: str) -> None:
        raise Rehearsed(self._caller, (Release(request=0, job=job, actor=actor),))


def install(app: FastAPI) -> None:
    """From now on the app answers tried acts with what they would change."""

    @app.exception_handler(Rehearsed)
    async def _tried(request: Request, tried: Rehearsed) -> Response:
        try:
            found = await tried.caller.cluster.forecasts.compare(tried.events)
        except JctError as error:
            return problem(error, request_id(request))
        return answer(whatif_view(found, tried.caller.team_seen))


def whatif_view(found: Comparison, team_seen: str | None) -> WhatIf:
    """Jobs and teams that the caller may see; whether anything changes is told of all."""
    moved = [one for one in found.moved if team_seen in (None, one.team)]
    return WhatIf(
        changes=found.changes, moved=[_moved_view(one) for one in moved],
        preempted=[one.job for one in moved if one.preempted],
        teams=[
            TeamChangeView(
                team=one.team, jobs=one.jobs, left_out=one.left_out, jct_before_s=one.jct_before_s,
                jct_after_s=one.jct_after_s,
            )
            for one in found.teams
            if team_seen in (None, one.team)
        ],
        futures=found.futures,
    )  # fmt: skip


def _moved_view(one: Moved) -> MovedView:
    return MovedView(
        job=one.job, name=one.name, team=one.team, start_before=rfc3339(one.start_before_us),
        start_after=rfc3339(one.start_after_us), end_before=rfc3339(one.end_before_us),
        end_after=rfc3339(one.end_after_us), preempted=one.preempted, runs=one.runs,
        unknown=UNKNOWN_WORK if one.unknown else None,
    )  # fmt: skip
