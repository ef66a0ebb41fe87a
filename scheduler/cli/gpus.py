"""`jct gpus`: every device, what it measures, and who has it."""

import sys
import time
from typing import Annotated

import typer

from scheduler.cli.client import Client
from scheduler.cli.measured import KIND, MEMORY, NOTE, PLACE, POWER, SLOWDOWN, TEMPERATURE, UTIL, footnotes
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import print_json
from scheduler.cli.table import Column, job_table

WATCH_S = 2.0
COLUMNS = (
    PLACE,
    Column("DEVICE", lambda device, _: device["id"], keep=1),
    KIND,
    Column("STATE", lambda device, _: device["state"]),
    UTIL,
    MEMORY,
    POWER,
    TEMPERATURE,
    SLOWDOWN,
    Column("HELD BY", lambda device, _: f"job {device['job']}" if device["job"] is not None else "-"),
    NOTE,
)


def gpus(
    watch: Annotated[bool, typer.Option("--watch", help="Draw again every two seconds.")] = False,
    width: Width = None,
    json: Json = False,
) -> None:
    """List devices: what they measure, who has them, and whose processes use them."""
    client = Client.from_config()
    if watch and sys.stdout.isatty():
        _watch(client, width)
        return
    found = client.call("GET", "devices").json()["devices"]
    if json:
        print_json(devices=found)
        return
    columns = table_width(width)
    grid = job_table(found, "", columns, COLUMNS)
    grid.print()
    if notes := footnotes(grid, 0, columns):
        print("\n" + "\n".join(notes))


def _watch(client: Client, width: int | None) -> None:
    """Until Ctrl-C."""
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            found = client.call("GET", "devices").json()["devices"]
            live.update(job_table(found, "", table_width(width), COLUMNS), refresh=True)
            time.sleep(WATCH_S)
