"""A member's log, byte for byte, in pieces that say where they are, so that asking again follows it; or a stream."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from scheduler.api.access import CallerDep
from scheduler.api.answers import JobId
from scheduler.api.reading import LogQuery, find_member, first_offset, read
from scheduler.api.streams import LastEventId, WantsStream, log_stream

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.get("/{id}/logs", response_class=Response)
async def logs(
    id: JobId, query: Annotated[LogQuery, Query()], caller: CallerDep, streams: WantsStream, last: LastEventId = None
) -> Response:
    """Bytes from `offset`. Headers: X-Log-Offset of the first byte (beyond what was asked where the head is gone),
    X-Log-Size so far, X-Log-Open whether more may come. A stream for those who accept one.
    """
    if streams:
        find_member(await caller.story(id, "logs"), query)
        return log_stream(caller, id, query, last)
    cluster = caller.cluster
    member = find_member(await caller.story(id, "logs"), query)
    start = await first_offset(cluster, member, query)
    first, data, size = await read(cluster, member, start, query.limit)
    headers = {
        "X-Log-Offset": str(first),
        "X-Log-Size": str(size),
        "X-Log-Open": "false" if member.gone_us is not None else "true",
    }
    return Response(data, headers=headers, media_type="application/octet-stream")
