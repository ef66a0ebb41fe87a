"""Server-sent events: of the cluster, of a job, of a log. A stream holds no database session.

It ends when the daemon stops, when its token is revoked or expires, or when there is nothing more to come. A client
that comes back with Last-Event-ID goes on where it was.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header
from fastapi.responses import StreamingResponse

from scheduler.api.access import Caller
from scheduler.api.answers import MAX_ID
from scheduler.api.reading import PIECE_BYTES, LogQuery, find_member, first_offset, read
from scheduler.api.views import event_view
from scheduler.core.entities import Event, JobState
from scheduler.core.errors import JctError

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0
LOOK_S = 1.0
PAGE = 500
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=MAX_ID)]


def wants_stream(accept: Annotated[str, Header()] = "") -> bool:
    """The same addresses answer pages, or a stream for those who accept one."""
    return MEDIA_TYPE in accept


WantsStream = Annotated[bool, Depends(wants_stream)]


def event_stream(caller: Caller, job: int | None, after: int) -> StreamingResponse:
    """Events with a higher number than `after`: of one job until it ends, or of all that the caller may see."""
    return _stream(_events(caller, job, after))


def log_stream(caller: Caller, id: int, query: LogQuery, last: int | None) -> StreamingResponse:
    """Pieces of one member's log: their offset, and the bytes in base64. It ends when the member has."""
    return _stream(_log(caller, id, query, last))


def _stream(source: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(source, media_type=MEDIA_TYPE, headers=_HEADERS)


def _line(id: int, kind: str, data: Any) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (id, kind.encode(), msgspec.json.encode(data))


def _goes_on(caller: Caller) -> bool:
    return not caller.cluster.ring.closed and caller.still_valid()


async def _events(caller: Caller, job: int | None, after: int) -> AsyncIterator[bytes]:
    ring = caller.cluster.ring
    yield b"retry: 1000\n\n"
    quiet_s = 0.0
    while _goes_on(caller):
        found = ring.after(after, PAGE)
        if found is None or (after == 0 and job is not None):  # older than memory: the database has them
            found = await caller.cluster.events(job, after, PAGE)
        for event in found:
            after = event.seq
            if job in (None, event.job) and _may_see(caller, event):
                yield _line(event.seq, event.kind, event_view(event))
                quiet_s = 0.0
        if found:
            continue
        if job is not None and _is_over(caller, job):
            yield _line(after, "end", {"job": job})
            return
        await ring.wait(after, LOOK_S)
        quiet_s += LOOK_S
        if quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield b": still here\n\n"


def _is_over(caller: Caller, id: int) -> bool:
    job = caller.cluster.state.jobs.get(id)
    return job is None or job.state is JobState.DONE


def _may_see(caller: Caller, event: Event) -> bool:
    if caller.team_seen is None:
        return True
    job = caller.cluster.state.jobs.get(event.job) if event.job is not None else None
    return job is not None and job.spec.team == caller.team_seen


async def _log(caller: Caller, id: int, query: LogQuery, last: int | None) -> AsyncIterator[bytes]:
    cluster, at = caller.cluster, last if last is not None else query.offset
    yield b"retry: 1000\n\n"
    try:
        member = find_member(await caller.story(id, "stream"), query)
        if last is None:
            at = await first_offset(cluster, member, query)
        while _goes_on(caller):
            over = find_member(await caller.story(id, "stream"), query).gone_us is not None
            first, data, size = await read(cluster, member, at, PIECE_BYTES)
            if first > at:
                yield _line(first, "gap", {"from": at, "to": first})
            if data:
                at = first + len(data)
                yield _line(at, "log", {"offset": first, "data": base64.b64encode(data).decode()})
            elif over and at >= size:
                yield _line(at, "end", {"job": id})
                return
            else:
                await asyncio.sleep(LOOK_S)
    except JctError as error:
        yield _line(at, "error", {"code": error.code, "detail": error.message})
