"""`jct drain`, `resume`, `reserve`: nodes and devices that get no new work."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json, table_width
from scheduler.cli.output import local_time, print_json, say, visible
from scheduler.core.errors import Code, JctError

Where = Annotated[
    str, typer.Argument(metavar="NODE|DEVICE", help="A node's name, or with --device a device: NODE/N or its id.")
]
IsDevice = Annotated[bool, typer.Option("--device", help="One device instead of a whole node.")]


def drain(
    what: Where, reason: Annotated[str, typer.Option(help="Why; shown to everybody.")], device: IsDevice = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Start nothing new there; what runs goes on."""
    client = Client.from_config()
    found = client.call("POST", _path(client, what, device, "drain"), body={"reason": reason}).json()
    print_json(drain=found) if json else say(f"{visible(what)} is drained: {visible(reason)}")


def resume(what: Where, device: IsDevice = False) -> None:
    """Give it work again."""
    client = Client.from_config()
    client.call("POST", _path(client, what, device, "resume"))
    say(f"{visible(what)} takes work again")


def _path(client: Client, what: str, device: bool, verb: str) -> str:
    """A device may be named as `jct gpus` shows it."""
    if device and "/" in what:
        for one in client.call("GET", "devices").json()["devices"]:
            if f"{one['node']}/{one['index']}" == what:
                what = one["id"]
    return f"{'devices' if device else 'nodes'}/{quote(what, safe='')}/{verb}"


def reserve(
    action: Annotated[str, typer.Argument(metavar="[ls|create|rm]")] = "ls",
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    nodes: Annotated[str | None, typer.Option(metavar="A,B", help="Nodes, with commas.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="How long, such as 2h.")] = None,
    begin: Annotated[str | None, typer.Option(help="When, such as 2030-01-31T08:00:00Z; now by default.")] = None,
    team: Annotated[str | None, typer.Option(help="Who may use them meanwhile; nobody by default.")] = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    json: Json = False,
) -> None:
    """Keep nodes for a team, or for nobody, for a time."""
    client = Client.from_config()
    match action, name:
        case "ls", None:
            _list(client.call("GET", "reservations").json()["records"], json)
        case "create", str() if nodes and duration:
            body = {"name": name, "nodes": nodes.split(","), "duration": duration, "reason": reason}
            body |= {key: value for key, value in (("begin", begin), ("team", team)) if value is not None}
            _list([client.call("POST", "reservations", body=body).json()], json)
        case "rm", str():
            client.call("DELETE", f"reservations/{quote(name, safe='')}")
            say(f"reservation {visible(name)} removed")
        case _:
            raise JctError(Code.BAD_SPEC, "say `ls`, `create NAME --nodes A,B --for 2h` or `rm NAME`")


def _list(records: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(reservations=records)
        return
    rows = [
        [
            record["name"], ",".join(fields["nodes"]), local_time(fields["from"]), local_time(fields["until"]),
            fields["team"] or "-", fields["by"], fields["reason"],
        ]
        for record in records
        for fields in [record["fields"]]
    ]  # fmt: skip
    grid(("NAME", "NODES", "FROM", "UNTIL", "TEAM", "BY", "REASON"), rows, table_width(None)).print()
