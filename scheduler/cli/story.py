"""`jct events`: what happened, when, and who did it."""

from typing import Annotated

import typer

from scheduler.cli.client import Client
from scheduler.cli.options import Json
from scheduler.cli.output import local_time, print_json, visible


def events(
    id: Annotated[int | None, typer.Argument(min=1, metavar="[ID]", help="The job's id; without it, all.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only events with a higher number.")] = 0,
    json: Json = False,
) -> None:
    """Tell what happened, to a job or to the cluster, oldest first."""
    found = list(Client.from_config().events("events" if id is None else f"jobs/{id}/events", after))
    if json:
        print_json(events=found)
        return
    for event in found:
        about = [f"job {event['job']}" if event["job"] and id is None else "", event["node"] or ""]
        where = f" [{' '.join(part for part in about if part)}]" if any(about) else ""
        said = f"{event['kind']}{where} {event['message']} ({event['actor']})"
        print(f"{local_time(event['time'])}  {visible(said)}")
