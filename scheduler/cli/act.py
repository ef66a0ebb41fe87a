"""`jct cancel`, `hold`, `release`, `requeue`, `signal`, `checkpoint`, `preempt`, `top-of-queue`, `update`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from scheduler.cli import exits
from scheduler.cli.client import Client
from scheduler.cli.options import Ids, Json, gpu_range
from scheduler.cli.output import print_error, print_json
from scheduler.cli.submit import moment, priority_of
from scheduler.core.errors import Code, JctError

Act = Callable[[Client, int], dict[str, Any]]


def cancel(
    ids: Ids, reason: Annotated[str, typer.Option(help="Why, for the job's story.")] = "", json: Json = False
) -> int:
    """Cancel jobs. A job that has already ended stays as it is, and that is no error."""
    return _each(ids, lambda client, id: client.act(id, "cancel", {"reason": reason}), json)


def hold(ids: Ids, json: Json = False) -> int:
    """Keep jobs from running; one that runs is checkpointed and stopped."""
    return _each(ids, lambda client, id: client.act(id, "hold"), json)


def release(ids: Ids, json: Json = False) -> int:
    """Let held jobs run."""
    return _each(ids, lambda client, id: client.act(id, "release"), json)


def requeue(ids: Ids, json: Json = False) -> int:
    """Save, stop and queue jobs again; they go on from their newest checkpoints."""
    return _each(ids, lambda client, id: client.act(id, "requeue"), json)


def signal(
    ids: Ids, signal: Annotated[str, typer.Option("-s", "--signal", help="SIGUSR1, TERM, ...")], json: Json = False
) -> int:
    """Send a signal to the processes of running jobs."""
    return _each(ids, lambda client, id: client.act(id, "signal", {"signal": signal}), json)


def checkpoint(ids: Ids, json: Json = False) -> int:
    """Have jobs save at their next step; their events tell when it is done."""
    return _each(ids, lambda client, id: client.act(id, "checkpoint"), json)


def preempt(ids: Ids, json: Json = False) -> int:
    """Stop jobs with a checkpoint, as for more important ones; for operators."""
    return _each(ids, lambda client, id: client.act(id, "preempt"), json)


def top(ids: Ids, json: Json = False) -> int:
    """Put jobs before all that wait in their queue; for operators. Of several, the last comes first."""
    return _each(ids, lambda client, id: client.act(id, "top"), json)


def update(
    ids: Ids,
    priority: Annotated[str | None, typer.Option(help="A number, or a priority class; higher goes first.")] = None,
    team: Annotated[str | None, typer.Option(help="The team it belongs to; for operators.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue it waits in.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Such as 90m or 2-12; `none` for no limit.")] = None,
    begin: Annotated[str | None, typer.Option(help="A moment with a zone; `none` for at once.")] = None,
    gpus: Annotated[str | None, typer.Option(help="How many: N, or MIN-MAX.")] = None,
    json: Json = False,
) -> int:
    """Change what is named; the begin time only while a job waits. A training that runs takes its new size on."""
    given = {"priority": priority_of(priority), "begin": moment(begin), "time_limit": time_limit}
    given |= {"team": team, "queue": queue}
    named = {key: value for key, value in given.items() if value is not None}
    change: dict[str, Any] = {key: None if value == "none" else value for key, value in named.items()}
    if gpus is not None:
        change["gpus"] = gpu_range(gpus)
    if not change:
        raise JctError(Code.BAD_SPEC, "name at least one thing to change", hint="such as --priority 80")
    tell = _sized if gpus is not None else _stands
    return _each(ids, lambda client, id: client.call("PATCH", f"jobs/{id}", body=change).json(), json, tell)


def _stands(job: dict[str, Any]) -> str:
    return f"job {job['id']} {job['state']}, priority {job['priority']}"


def _sized(job: dict[str, Any]) -> str:
    have, low, high = (job["gpus"][key] for key in ("have", "min", "max"))
    range_ = f"{low}" if low == high else f"{low}-{high}"
    return f"{_stands(job)}, {have} of {range_} GPUs" if have else f"{_stands(job)}, {range_} GPUs"


def _each(ids: Sequence[int], act: Act, json: bool, tell: Callable[[dict[str, Any]], str] = _stands) -> int:
    """All of them, whatever one says; the highest exit code. tell: a line about one."""
    client = Client.from_config()
    done, code = [], exits.OK
    for id in dict.fromkeys(ids):
        try:
            done.append(act(client, id))
        except JctError as error:
            print_error(error)
            code = max(code, exits.OF_CODE[error.code])
    if json:
        print_json(jobs=done)
    else:
        for job in done:
            print(tell(job))
    return code
