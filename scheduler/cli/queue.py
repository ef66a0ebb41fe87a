"""`jct ls`: the queue."""

import sys
import time
from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import print_json, say
from scheduler.cli.table import job_table

WATCH_S = 2.0


def ls(
    all: Annotated[bool, typer.Option("-a", "--all", help="Also jobs that have ended.")] = False,
    state: Annotated[list[str] | None, typer.Option(help="Only this state; may be repeated.")] = None,
    team: Annotated[str | None, typer.Option(help="Only this team.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest N.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Draw again every two seconds.")] = False,
    width: Width = None,
    json: Json = False,
) -> None:
    """List jobs: those that have not ended, oldest first."""
    client = Client.from_config()
    filters: dict[str, Any] = {"team": team, "state": [item.upper() for item in state or []]}
    if all:
        filters["all"] = "true"
    if watch and sys.stdout.isatty():
        _watch(client, limit, filters, width)
        return
    jobs, now = client.jobs(limit, **filters)
    if json:
        print_json(now=now, jobs=jobs[::-1])
    else:
        job_table(jobs[::-1], now, table_width(width)).print()
        if not jobs and not filters["state"] and not all:
            say("no job waits or runs; `jct ls -a` lists those that have ended, too")


def _watch(client: Client, limit: int | None, filters: dict[str, Any], width: int | None) -> None:
    """Until Ctrl-C."""
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            jobs, now = client.jobs(limit, **filters)
            live.update(job_table(jobs[::-1], now, table_width(width)), refresh=True)
            time.sleep(WATCH_S)
