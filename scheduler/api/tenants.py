"""Teams, users, queues and priority classes over REST: list, show, make, change, remove.

POST makes one, PATCH changes what is named (null clears a limit), DELETE removes it. A record that nobody made limits
nothing: teams and users come into being by being used.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import AfterValidator, Field

from policies.registry import queue_policies
from scheduler.api import acts
from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried, IfMatch
from scheduler.api.answers import Body, Plain, answer
from scheduler.api.foresight_shapes import WhatIf
from scheduler.api.rehearsal import TRIED
from scheduler.api.shapes import RecordList, RecordView
from scheduler.core.accounts import shares
from scheduler.core.caps import Holder, Use, use_of, waiting_of
from scheduler.core.edits import version_of
from scheduler.core.errors import Code, JctError
from scheduler.core.records import Capped, PriorityClass, Queue, Record, Team, User
from scheduler.jobfile.fields import MAX_PRIORITY, Name, Priority
from scheduler.store.tokens import Role

router = APIRouter(tags=["tenants"])

Limit = Annotated[int, Field(ge=0, le=10**6)]
Offset = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Names = Annotated[list[Name], Field(max_length=1_000)]


def _policy(name: str) -> str:
    if name and name not in queue_policies():
        raise ValueError(f"a queue's policy is one of {', '.join(queue_policies())}, or empty for the cluster's own")
    return name


class Caps(Body):
    """Every field may be left out; null is no limit, and nothing else can be null."""

    max_devices: Limit | None = None
    max_running: Limit | None = None
    max_pending: Limit | None = None


class TeamBody(Caps):
    weight: Annotated[float, Field(gt=0, le=1_000, strict=False)] = 1.0
    priority: Offset = 0


class UserBody(Caps):
    team: Name = "default"


class QueueBody(Caps):
    teams: Names = Field(default_factory=list)
    policy: Annotated[str, Field(max_length=100), AfterValidator(_policy)] = ""
    priority: Offset = 0
    paused: bool = False


class ClassBody(Body):
    value: Priority = 50
    teams: Names = Field(default_factory=list)
    users: Names = Field(default_factory=list)
    guaranteed: bool = False


class Named(Body):
    name: Name


class NewTeam(TeamBody, Named):
    """A team."""


class NewUser(UserBody, Named):
    """A user."""


class NewQueue(QueueBody, Named):
    """A queue."""


class NewClass(ClassBody, Named):
    """A priority class."""

    value: Priority


def _fields(body: Body) -> dict[str, Any]:
    """What was named, with lists as tuples."""
    named = {name: getattr(body, name) for name in body.model_fields_set}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}


def _view(record: Record, use: Use, waiting: Counter[Holder], share: dict[str, float]) -> RecordView:
    view: dict[str, Any] = {name: getattr(record, name) for name in record.__slots__ if name != "capped_lease"}
    if isinstance(record, Capped):
        holder = record.kind, record.name
        view["use"] = {
            "devices": len(use.devices.get(holder, ())),
            "running": use.running[holder],
            "pending": waiting[holder],
        }
    if isinstance(record, Team):
        view["share"] = share.get(record.name, 0.0)
    return RecordView(kind=record.kind, name=record.name, version=version_of(record), fields=view)


def _may_see(caller: Caller, record: Record) -> bool:
    if caller.team_seen is None or isinstance(record, Queue | PriorityClass):
        return True
    return caller.team_seen == (record.name if isinstance(record, Team) else getattr(record, "team", None))


def _looked_at(caller: Caller, records: list[Record]) -> list[RecordView]:
    state, now = caller.cluster.state, caller.cluster.now_us()
    use, waiting, share = use_of(state), waiting_of(state), shares(state, now, caller.cluster.half_life_s)
    return [_view(record, use, waiting, share) for record in records]


def _routes(
    plural: str, kind: type[Record], new: type[Named], patch: type[Body], least: Callable[[Caller, Any], Role]
) -> None:
    """The five routes of one kind. least: the role that may write such a record."""
    word = kind.kind

    def find(caller: Caller, name: str) -> Any:
        record = caller.cluster.state.book(word).get(name)
        if record is None or not _may_see(caller, record):
            raise JctError(Code.NOT_FOUND, f"there is no {word} {name[:200]!r}")
        return record

    async def check(caller: Caller, action: str, record: Any) -> None:
        await caller.at_least(least(caller, record), f"{action} {word}", f"{word} {record.name}")

    @router.get(f"/{plural}", response_model=RecordList, name=f"list {plural}")
    async def list_all(caller: CallerDep, _: Plain) -> Response:
        found = [record for record in caller.cluster.state.book(word).values() if _may_see(caller, record)]
        return answer(RecordList(records=_looked_at(caller, found)))

    @router.post(f"/{plural}", status_code=201, response_model=RecordView, responses=TRIED, name=f"create {word}")
    async def create(body: new, caller: CallerDep, _: CanBeTried) -> Response:  # type: ignore[valid-type]
        record = kind(**_fields(body))
        await check(caller, "create", record)
        if record.name in caller.cluster.state.book(word):
            raise JctError(Code.CONFLICT, f"there is a {word} {record.name!r} already", hint="change it with PATCH")
        await acts.write(caller, record)
        return _one(caller, record.name, 201)

    @router.get(f"/{plural}/{{name:path}}", response_model=RecordView, name=f"show {word}")
    async def show(name: str, caller: CallerDep, _: Plain) -> Response:
        return _one(caller, find(caller, name).name)

    @router.patch(f"/{plural}/{{name:path}}", response_model=RecordView | WhatIf, name=f"change {word}")
    async def change(name: str, body: patch, caller: CallerDep, _: CanBeTried, expected: IfMatch) -> Response:  # type: ignore[valid-type]
        old = find(caller, name)
        record = replace(old, **_fields(body))
        await check(caller, "change", old)
        await check(caller, "change", record)
        await acts.write(caller, record, expected)
        return _one(caller, name)

    @router.delete(
        f"/{plural}/{{name:path}}", status_code=204, response_class=Response, responses=TRIED, name=f"remove {word}"
    )
    async def remove(name: str, caller: CallerDep, _: CanBeTried) -> Response:
        record = find(caller, name)
        await check(caller, "remove", record)
        await acts.erase(caller, record)
        return Response(status_code=204)

    def _one(caller: Caller, name: str, status: int = 200) -> Response:
        [view] = _looked_at(caller, [caller.cluster.state.book(word)[name]])
        return answer(view, status, acts.etag(view["version"]))


def _users_lead(caller: Caller, record: Any) -> Role:
    """A lead sets the caps of the own team's users."""
    own = caller.token.role is Role.LEAD and record.team == caller.token.team
    return Role.LEAD if own else Role.ADMIN


_routes("teams", Team, NewTeam, TeamBody, lambda caller, record: Role.ADMIN)
_routes("users", User, NewUser, UserBody, _users_lead)
_routes("queues", Queue, NewQueue, QueueBody, lambda caller, record: Role.OPERATOR)
_routes("priority-classes", PriorityClass, NewClass, ClassBody, lambda caller, record: Role.ADMIN)
