"""`jct webhook`: where jctd tells of events by HTTP."""

from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json
from scheduler.cli.output import print_json, say, terminal_width, visible
from scheduler.core.errors import Code, JctError


def webhook(
    action: Annotated[str, typer.Argument(metavar="[ls|add|rm]", help="List, make, or remove.")] = "ls",
    what: Annotated[str | None, typer.Argument(metavar="NAME|ID", help="A new one's name; an old one's id.")] = None,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="Where a new one posts to.")] = None,
    team: Annotated[str | None, typer.Option(help="Whose jobs; a lead's own, and all for admins, by default.")] = None,
    events: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of job, node, daemon, or kinds such as Ended; all by default.")
    ] = None,
    json: Json = False,
) -> None:
    """List webhooks, make one (its secret is shown this once), or remove one."""
    client = Client.from_config()
    match action, what, url:
        case "ls", None, None:
            _list(client.call("GET", "webhooks").json()["webhooks"], json)
        case "add", str(), str():
            body = {"name": what, "url": url, "team": team, "events": events.split(",") if events else None}
            named = {name: value for name, value in body.items() if value is not None}
            made = client.call("POST", "webhooks", body=named).json()
            say(f"webhook {made['id']} posts to {visible(url)}; the secret that signs is shown only now:")
            print_json(webhook=made) if json else print(made["secret"])
        case "rm", str(), None if what.isdecimal():
            client.call("DELETE", f"webhooks/{int(what)}")
            say(f"webhook {int(what)} is removed")
        case _:
            raise JctError(Code.BAD_SPEC, "say `ls`, `add NAME URL` or `rm ID`")


def _list(webhooks: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(webhooks=webhooks)
        return
    rows = [
        [
            str(item["id"]), item["name"], item["team"] or "all", ",".join(item["events"]), str(item["behind"]),
            item["trouble"] or ("failing" if item["failing_since"] else "-"), item["url"],
        ]
        for item in webhooks
    ]  # fmt: skip
    grid(("ID", "NAME", "TEAM", "EVENTS", "BEHIND", "TROUBLE", "URL"), rows, terminal_width()).print()
