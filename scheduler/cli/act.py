"""`jct cancel`, `hold`, `release`, `update`: acts on jobs, each safe to repeat."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from scheduler.cli import exits
from scheduler.cli.client import Client
from scheduler.cli.options import Ids, Json
from scheduler.cli.output import print_error, print_json
from scheduler.core.errors import JctError

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


def update(
    ids: Ids, priority: Annotated[int, typer.Option(help="The new priority; higher goes first.")], json: Json = False
) -> int:
    """Change a job's priority."""
    change = {"priority": priority}
    return _each(ids, lambda client, id: client.call("PATCH", f"jobs/{id}", body=change).json(), json)


def _each(ids: Sequence[int], act: Act, json: bool) -> int:
    """All of them, whatever one says; the highest exit code."""
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
            print(f"job {job['id']} {job['state']}, priority {job['priority']}")
    return code
