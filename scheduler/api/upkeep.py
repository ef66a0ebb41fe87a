"""Drains and reservations over REST."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import AfterValidator, Field

from scheduler.api import acts
from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried
from scheduler.api.answers import Body, Plain, answer
from scheduler.api.foresight_shapes import WhatIf
from scheduler.api.rehearsal import TRIED
from scheduler.api.shapes import RecordList, RecordView
from scheduler.api.times import rfc3339
from scheduler.core.edits import version_of
from scheduler.core.errors import Code, JctError
from scheduler.core.records import Drain, Reservation
from scheduler.core.settings import us
from scheduler.jobfile.fields import Name, Seconds, is_control
from scheduler.store.tokens import Role

router = APIRouter(tags=["upkeep"])


def _one_line(text: str) -> str:
    if any(map(is_control, text)):
        raise ValueError("must not hold control characters")
    return text


class Why(Body):
    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_one_line)]


@router.post("/nodes/{id:path}/drain", response_model=RecordView | WhatIf)
async def drain_node(id: str, why: Why, caller: CallerDep, _: CanBeTried) -> Response:
    """Nothing new starts there; what runs goes on. It holds until somebody resumes it, over restarts."""
    return await _drain(caller, f"node/{id}", id in caller.cluster.state.nodes, why.reason)


@router.post("/nodes/{id:path}/resume", status_code=204, response_class=Response, responses=TRIED)
async def resume_node(id: str, caller: CallerDep, _: CanBeTried) -> Response:
    return await _resume(caller, f"node/{id}")


@router.post("/devices/{id:path}/drain", response_model=RecordView | WhatIf)
async def drain_device(id: str, why: Why, caller: CallerDep, _: CanBeTried) -> Response:
    return await _drain(caller, f"device/{id}", id in caller.cluster.state.devices, why.reason)


@router.post("/devices/{id:path}/resume", status_code=204, response_class=Response, responses=TRIED)
async def resume_device(id: str, caller: CallerDep, _: CanBeTried) -> Response:
    return await _resume(caller, f"device/{id}")


async def _may(caller: Caller, action: str, target: str) -> None:
    if caller.token.role is not Role.AGENT:
        await caller.at_least(Role.OPERATOR, action, target)


async def _drain(caller: Caller, name: str, known: bool, reason: str) -> Response:
    await _may(caller, "drain", name)
    if not known:
        kind, _, id = name.partition("/")
        listing = "jct nodes" if kind == "node" else "jct gpus"
        raise JctError(Code.NOT_FOUND, f"there is no {kind} {id[:200]!r}", hint=f"list them: {listing}")
    drain = Drain(name=name, reason=reason, by=caller.user, since_us=caller.cluster.now_us())
    await acts.write(caller, drain)
    fields = {"reason": reason, "by": drain.by, "since": rfc3339(drain.since_us)}
    return answer(RecordView(kind=drain.kind, name=name, version=version_of(drain), fields=fields))


async def _resume(caller: Caller, name: str) -> Response:
    await _may(caller, "resume", name)
    drain = caller.cluster.state.drains.get(name)
    if drain is None:
        raise JctError(Code.CONFLICT, f"{name.replace('/', ' ', 1)[:200]} is not drained")
    await acts.erase(caller, drain)
    return Response(status_code=204)


class NewReservation(Body):
    """begin: RFC 3339 with a zone, now where left out. team: who may use the nodes meanwhile; nobody where left out."""

    name: Name
    nodes: Annotated[list[Name], Field(min_length=1, max_length=10_000)]
    begin: Annotated[datetime, Field(strict=False)] | None = None
    duration: Annotated[Seconds, Field(ge=1)]
    team: Name | None = None
    reason: Annotated[str, Field(max_length=500), AfterValidator(_one_line)] = ""


@router.get("/reservations", response_model=RecordList)
async def reservations(caller: CallerDep, _: Plain) -> Response:
    return answer(RecordList(records=[_view(item) for item in caller.cluster.state.reservations.values()]))


@router.post("/reservations", status_code=201, response_model=RecordView, responses=TRIED)
async def reserve(body: NewReservation, caller: CallerDep, _: CanBeTried) -> Response:
    """When it begins, jobs of others on these nodes are stopped with a checkpoint."""
    await caller.at_least(Role.OPERATOR, "create reservation", f"reservation {body.name}")
    state = caller.cluster.state
    unknown = [node for node in body.nodes if node not in state.nodes]
    if unknown:
        raise JctError(Code.BAD_SPEC, f"there is no node {unknown[0]!r}", field="nodes", hint="list them: jct nodes")
    if body.name in state.reservations:
        raise JctError(Code.CONFLICT, f"there is a reservation {body.name!r} already")
    begin = begin_us(body.begin, caller.cluster.now_us())
    item = Reservation(
        name=body.name, nodes=tuple(dict.fromkeys(body.nodes)), from_us=begin, until_us=begin + us(body.duration),
        team=body.team or "", reason=body.reason, by=caller.user,
    )
    await acts.write(caller, item)
    return answer(_view(item), 201)


def begin_us(begin: datetime | None, now_us: int) -> int:
    """Raises JctError BAD_SPEC for a time without a zone."""
    if begin is None:
        return now_us
    if begin.tzinfo is None:
        raise JctError(Code.BAD_SPEC, "begin needs a time zone, such as 2030-01-31T08:00:00Z", field="begin")
    return round((begin - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)


@router.delete("/reservations/{name:path}", status_code=204, response_class=Response, responses=TRIED)
async def unreserve(name: str, caller: CallerDep, _: CanBeTried) -> Response:
    await caller.at_least(Role.OPERATOR, "remove reservation", f"reservation {name}")
    item = caller.cluster.state.reservations.get(name)
    if item is None:
        raise JctError(Code.NOT_FOUND, f"there is no reservation {name[:200]!r}")
    await acts.erase(caller, item)
    return Response(status_code=204)


def _view(item: Reservation) -> RecordView:
    fields = {
        "nodes": list(item.nodes), "from": rfc3339(item.from_us), "until": rfc3339(item.until_us), "team": item.team,
        "reason": item.reason, "by": item.by,
    }
    return RecordView(kind=item.kind, name=item.name, version=version_of(item), fields=fields)
