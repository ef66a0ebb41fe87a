"""`jct run -- PROGRAM ARGUMENTS`: any program as a job, without a job file."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.cli.options import Json, gpu_range
from scheduler.cli.submit import moment, priority_of, send


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARGUMENTS...", help="Kept as a list; no shell.")],
    name: Annotated[str | None, typer.Option(help="The job's name; the program's by default.")] = None,
    gpus: Annotated[str, typer.Option(help="How many: N, or MIN-MAX.")] = "1",
    team: Annotated[str | None, typer.Option(envvar="JCT_TEAM", help="The team it belongs to.")] = None,
    queue: Annotated[str | None, typer.Option(help="Where it waits.")] = None,
    priority: Annotated[str | None, typer.Option(help="A number or a class; higher goes first.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Such as 90m, 1d12h or 2-12.")] = None,
    after: Annotated[str | None, typer.Option(help="Jobs to wait for: 12, or afterok:12:13,afterany:14.")] = None,
    begin: Annotated[str | None, typer.Option(help="Not before this moment, or now+2h.")] = None,
    array: Annotated[str | None, typer.Option(help="One job an index: 0-9, or 0-9%2 for two at once.")] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often to try again after a failure.")] = 0,
    env: Annotated[list[str] | None, typer.Option("-e", "--env", metavar="NAME=VALUE", help="Its environment.")] = None,
    secret: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A variable nobody shall see.")] = None,
    workdir: Annotated[Path, typer.Option(help="Where it runs.")] = Path("."),
    parsable: Annotated[bool, typer.Option("-q", "--parsable", help="Print the id alone.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and exit as it did.")] = False,
    json: Json = False,
) -> int:
    """Run a program as a gang, one process a device, with torchrun's variables set."""
    document: dict[str, Any] = {
        "name": name or os.path.basename(command[0]) or "command", "command": command,
        "workdir": str(workdir.expanduser().resolve()), "gpus": gpu_range(gpus), "retries": {"max": retries},
    }  # fmt: skip
    given: dict[str, Any] = {"team": team, "queue": queue, "time_limit": time_limit, "array": array}
    given["priority"] = priority_of(priority)
    given |= {"begin": moment(begin), "after": int(after) if after is not None and after.isdecimal() else after}
    given |= {"env": {key: value for key, _, value in (item.partition("=") for item in env or ())} or None}
    given |= {"env_from": secret or None}
    document |= {key: value for key, value in given.items() if value is not None}
    return send(document, parsable=parsable, wait=wait, json=json)
