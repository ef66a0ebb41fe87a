"""Reading a member's log from its node, byte for byte."""

from typing import Annotated

from pydantic import Field

from scheduler.api.answers import MAX_ID, Strict
from scheduler.api.cluster import Cluster
from scheduler.core.entities import Member
from scheduler.core.errors import Code, JctError
from scheduler.core.story import Story
from scheduler.protocol.messages import Chunk

PIECE_BYTES = 65_536
MAX_BYTES = 1024 * 1024
MAX_TAIL_BYTES = 8 * 1024 * 1024


class LogQuery(Strict):
    """attempt: the newest by default. Either member or rank; member 0 by default. Where to begin: an offset, or `tail`
    lines from the end, or with what was written in the last `since_s` seconds."""

    attempt: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    member: Annotated[int, Field(ge=0, le=MAX_ID)] | None = None
    rank: Annotated[int, Field(ge=0, le=MAX_ID)] | None = None
    offset: Annotated[int, Field(ge=0, le=MAX_ID)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_BYTES)] = MAX_BYTES
    tail: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    since_s: Annotated[float, Field(gt=0, le=1e9)] | None = None


def find_member(story: Story, query: LogQuery) -> Member:
    """Raises JctError NOT_FOUND, saying which there are."""
    if query.member is not None and query.rank is not None:
        raise JctError(Code.BAD_SPEC, "give either member or rank", field="rank")
    if not story.attempts:
        raise JctError(Code.NOT_FOUND, f"job {story.job.id} has not started yet, so it has no log")
    attempt = query.attempt or story.attempts[-1].number
    number = query.member or 0
    if query.rank is not None:
        shape = story.shape_of(attempt)
        ranks = shape.ranks if shape is not None else ()
        number = ranks[query.rank] if query.rank < len(ranks) else -1
    members = [member for member in story.members if member.attempt == attempt]
    found = next((member for member in members if member.number == number), None)
    if found is None:
        have = f"attempt {attempt} has ranks 0 to {len(members) - 1}" if members else f"there is no attempt {attempt}"
        raise JctError(Code.NOT_FOUND, f"job {story.job.id} has no such log: {have}")
    return found


async def _chunk(cluster: Cluster, member: Member, offset: int, limit: int) -> Chunk:
    return _here(await cluster.read_log(member.job, member.attempt, member.number, offset, limit))


def _here(chunk: Chunk) -> Chunk:
    if chunk.missing:
        raise JctError(Code.BUSY, f"this log is unavailable: {chunk.missing}", hint="try again when its node is back")
    return chunk


async def read(cluster: Cluster, member: Member, offset: int, limit: int) -> tuple[int, bytes, int]:
    """(offset of the first byte, up to limit bytes, size of the log)."""
    first, data = None, bytearray()
    while True:
        chunk = await _chunk(cluster, member, offset, min(PIECE_BYTES, limit - len(data)))
        if first is None:
            first = offset = chunk.offset
        if chunk.offset != offset:  # the head was cut off meanwhile: what is here so far is a piece of its own
            break
        data += chunk.data
        offset += len(chunk.data)
        if not chunk.data or len(data) >= limit or offset >= chunk.size:
            break
    return first, bytes(data), chunk.size


async def first_offset(cluster: Cluster, member: Member, query: LogQuery) -> int:
    """Where reading begins. Raises JctError where several answers are asked for."""
    if query.since_s is not None and query.tail is not None:
        raise JctError(Code.BAD_SPEC, "give either since_s or tail", field="since_s")
    if query.since_s is not None:
        ask = cluster.read_log(member.job, member.attempt, member.number, 0, 1, query.since_s)
        return _here(await ask).offset
    return query.offset if query.tail is None else await tail_offset(cluster, member, query.tail)


async def tail_offset(cluster: Cluster, member: Member, lines: int) -> int:
    """Where the last `lines` lines begin; at most MAX_TAIL_BYTES from the end."""
    last = await _chunk(cluster, member, -PIECE_BYTES, PIECE_BYTES)
    size = last.offset + len(last.data)
    start, data = last.offset, last.data
    while start > 0 and data[:-1].count(b"\n") < lines and size - start < MAX_TAIL_BYTES:
        back = min(start, PIECE_BYTES)
        more = await _chunk(cluster, member, start - back, back)
        if more.offset != start - back:
            break
        start, data = more.offset, more.data + data
    return start + start_of_last_lines(data, lines)


def start_of_last_lines(data: bytes, lines: int) -> int:
    """Index in data; a last line without a newline counts as one."""
    at = len(data)
    for _ in range(lines):
        if at == 0:
            break
        at = data.rfind(b"\n", 0, at - 1) + 1
    return at
