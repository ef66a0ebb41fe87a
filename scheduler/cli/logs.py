"""`jct logs`: what the job's processes wrote, byte for byte; a label per rank only where there are several."""

import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from scheduler.cli.client import Answer, Client
from scheduler.cli.options import Id
from scheduler.cli.output import say
from scheduler.cli.wait import patiently
from scheduler.core.errors import Code, JctError
from scheduler.durations import BadDuration, parse_duration

POLL_S = 0.5


@dataclass
class Source:
    """One member's log: how far it was read, and what is held back of a line that has not ended."""

    member: int
    label: bytes
    offset: int = 0
    tail: int | None = None
    since_s: float | None = None
    rest: bytes = b""
    over: bool = False


def logs(
    id: Id,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last N lines.")] = None,
    since: Annotated[str | None, typer.Option(help="Only what was written in the last 10m, 1h, ...")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="This attempt; the newest by default.")] = None,
    previous: Annotated[bool, typer.Option("--previous", help="The attempt before the newest.")] = False,
) -> None:
    """Print a job's logs."""
    since_s = _since_s(since, tail)
    client = Client.from_config()
    job = client.job(id)
    if previous:
        attempt = _previous(job, attempt)
    while follow and not job["attempts"] and job["result"] is None:
        time.sleep(POLL_S)
        job = patiently(lambda: client.job(id))
    if not job["attempts"]:
        raise JctError(Code.NOT_FOUND, f"job {id} has not started, so it has no log", hint="`jct logs -f` waits for it")
    number = attempt or job["attempts"][-1]["attempt"]
    sources = [replace(source, tail=tail, since_s=since_s) for source in _sources(job, number, rank)]
    _attempt(client, id, sources, number, follow)
    if not follow and all(source.offset == 0 for source in sources):
        say(f"jct: attempt {number} of job {id} has written nothing yet; its steps and losses are in `jct show {id}`")
    while follow and attempt is None and (newer := _newer(client, id, number)) is not None:
        number += 1
        _attempt(client, id, _sources(newer, number, rank), number, follow)


def _newer(client: Client, id: int, number: int) -> dict[str, Any] | None:
    """The job once it has an attempt after this one; None where it ends without."""
    while True:
        job: dict[str, Any] = patiently(lambda: client.job(id))
        if job["attempts"][-1]["attempt"] > number:
            return job
        if job["result"] is not None:
            return None
        time.sleep(POLL_S)


def _since_s(since: str | None, tail: int | None) -> float | None:
    if since is None:
        return None
    if tail is not None:
        raise JctError(Code.BAD_SPEC, "give either --since or --tail")
    try:
        seconds = parse_duration(since, bare="seconds")
    except BadDuration as error:
        raise JctError(Code.BAD_SPEC, f"--since: {error}") from None
    if seconds == 0:
        raise JctError(Code.BAD_SPEC, "--since: must be more than 0")
    return float(seconds)


def _previous(job: dict[str, Any], attempt: int | None) -> int:
    numbers = [item["attempt"] for item in job["attempts"]]
    if attempt is not None:
        raise JctError(Code.BAD_SPEC, "give either --previous or --attempt")
    if len(numbers) < 2:
        raise JctError(Code.NOT_FOUND, f"job {job['id']} has no attempt before its newest; it has {len(numbers)}")
    return int(numbers[-2])


def _sources(job: dict[str, Any], number: int, rank: int | None) -> list[Source]:
    attempt = next((item for item in job["attempts"] if item["attempt"] == number), None)
    if attempt is None:
        raise JctError(Code.NOT_FOUND, f"job {job['id']} has no attempt {number}")
    members = [member for member in attempt["members"] if rank is None or member["rank"] == rank]
    if not members:
        raise JctError(Code.NOT_FOUND, f"attempt {number} has no rank {rank}; it has {len(attempt['members'])} ranks")
    several = len(members) > 1
    return [
        Source(member["member"], b"[rank %d] " % (member["rank"] or 0) if several else b"")
        for member in members
    ]


def _attempt(client: Client, id: int, sources: list[Source], number: int, follow: bool) -> None:
    """All of it, rank by rank; with follow, in rounds until every process and its descendants are gone."""
    while True:
        quiet = True
        for source in sources:
            while not source.over and _piece(client, id, source, number, follow):
                quiet = False
        sys.stdout.buffer.flush()
        if all(source.over for source in sources):
            return
        if quiet:
            time.sleep(POLL_S)


def _piece(client: Client, id: int, source: Source, number: int, follow: bool) -> bool:
    """Print the next piece; whether there is more. What is written while one reads is there at the next look, so that a
    busy log is not asked for without end."""
    query: dict[str, Any] = {"attempt": number, "member": source.member}
    begins = source.tail is not None or source.since_s is not None
    query |= {"tail": source.tail, "since_s": source.since_s} if begins else {"offset": source.offset}
    ask = partial(client.call, "GET", f"jobs/{id}/logs", query)
    answer: Answer = patiently(ask) if follow else ask()
    first = int(answer.headers["x-log-offset"])
    if not begins and first > source.offset:
        say(f"jct: {first - source.offset} bytes of member {source.member}'s log are gone: it had reached its cap")
    source.offset, source.tail, source.since_s = first + len(answer.data), None, None
    at_end = source.offset >= int(answer.headers["x-log-size"])
    source.over = at_end and (not follow or answer.headers["x-log-open"] == "false")
    _write(source, answer.data)
    return bool(answer.data) and not at_end


def _write(source: Source, data: bytes) -> None:
    """Without a label the bytes as they are; with one, whole lines."""
    out = sys.stdout.buffer
    if not source.label:
        out.write(data)
        return
    *lines, source.rest = (source.rest + data).split(b"\n")
    for line in lines:
        out.write(source.label + line + b"\n")
    if source.over and source.rest:
        out.write(source.label + source.rest + b"\n")
