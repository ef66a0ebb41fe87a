"""`jct wait`: until jobs have ended; the exit code is theirs."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from scheduler.cli import exits
from scheduler.cli.client import Client
from scheduler.cli.options import Ids, Json
from scheduler.cli.output import print_json, say, visible
from scheduler.cli.units import seconds
from scheduler.core.errors import Code, JctError

POLL_S = 0.5
PATIENCE_S = 120.0
"""How long an unreachable jctd is waited for: a restart must not end a script that waits."""


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def wait(
    ids: Ids,
    timeout: Annotated[
        float | None,
        typer.Option(parser=_seconds, metavar="TIME", help="Give up after so long: 90 (seconds), 10m (exit code 7)."),
    ] = None,
    exit_by_state: Annotated[bool, typer.Option(help="Exit 0, or 100 to 106 by the job's state.")] = False,
    json: Json = False,
) -> int:
    """Wait for jobs to end. Exits as the job did (128+n for a signal); of several, with the highest code."""
    client = Client.from_config()
    try:
        return until_ended(client, ids, timeout, exits.of_job_state if exit_by_state else exits.of_job, json)
    except JctError as error:
        if exit_by_state and error.code is Code.NOT_FOUND:
            say(f"jct: {visible(error.message)}")
            return exits.STATE_NOT_FOUND
        raise


def until_ended(
    client: Client,
    ids: Sequence[int],
    timeout_s: float | None = None,
    code: Callable[[dict[str, Any]], int] = exits.of_job,
    json: bool = False,
) -> int:
    """Prints how each ended, and answers with the highest code."""
    started = time.monotonic()
    done: dict[int, dict[str, Any]] = {}
    for id in dict.fromkeys(ids):
        while id not in done:
            job = patiently(lambda id=id: client.job(id))  # type: ignore[misc]
            if job["result"] is not None:
                done[id] = job
            elif timeout_s is not None and time.monotonic() - started >= timeout_s:
                say(f"jct: job {id} is still {job['state']} after {timeout_s:g} s")
                return exits.STATE_NOT_FINISHED if code is exits.of_job_state else exits.TIMED_OUT
            else:
                time.sleep(POLL_S)
    if json:
        print_json(jobs=list(done.values()))
    else:
        for id, job in done.items():
            say(f"job {id} {job['result']}: {visible(job['reason']['text']) if job['reason'] else ''}")
    return max(map(code, done.values()))


def patiently(ask: Callable[[], Any]) -> Any:
    """The answer, also from a jctd that is just being started again."""
    since = time.monotonic()
    while True:
        try:
            return ask()
        except JctError as error:
            if error.code not in {Code.UNREACHABLE, Code.BUSY} or time.monotonic() - since > PATIENCE_S:
                raise
            time.sleep(2 * POLL_S)
