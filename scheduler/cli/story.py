"""`jct events`: what happened, when, and who did it."""

from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.options import Json
from scheduler.cli.output import folded, local_time, print_json, terminal_width, visible


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
    width = terminal_width()
    for event in found:
        print("\n".join(told(event, width, of_one_job=id is not None)))


def told(event: dict[str, Any], width: int | None, *, of_one_job: bool) -> list[str]:
    """One line where width is None; else what happened goes on below itself, beside the time."""
    about = [f"job {event['job']}" if event["job"] and not of_one_job else "", event["node"] or ""]
    where = f" [{' '.join(part for part in about if part)}]" if any(about) else ""
    said = visible(f"{event['kind']}{where}: {event['message']} ({event['actor']})")
    time = f"{local_time(event['time'])}  "
    first, *more = [said] if width is None else folded(said, width - len(time))
    return [time + first, *(" " * len(time) + line for line in more)]
