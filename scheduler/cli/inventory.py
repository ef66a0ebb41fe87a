"""`jct nodes`."""

from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json
from scheduler.cli.output import print_json, terminal_width
from scheduler.cli.table import short_duration


def nodes(json: Json = False) -> None:
    """List nodes."""
    found = Client.from_config().call("GET", "nodes").json()["nodes"]
    if json:
        print_json(nodes=found)
        return
    titles = ("NODE", "STATE", "DEVICES(free/all)", "HEARD", "ADDRESS", "DRAINED")
    rows = [
        [
            node["id"],
            node["state"],
            f"{node['free']}/{node['devices']}",
            f"{short_duration(node['last_seen_s'])} ago" if node["last_seen_s"] is not None else "not yet",
            node["address"],
            _drained(node),
        ]
        for node in found
    ]
    grid(titles, rows, terminal_width()).print()


def _drained(item: dict[str, Any]) -> str:
    drain = item["drain"]
    return f"by {drain['by']}: {drain['reason']}" if drain is not None else "-"
