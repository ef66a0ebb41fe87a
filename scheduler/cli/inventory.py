"""`jct nodes`."""

from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import print_json
from scheduler.cli.table import Column, job_table, short_duration

Node = dict[str, Any]


def nodes(width: Width = None, json: Json = False) -> None:
    """List nodes."""
    found = Client.from_config().call("GET", "nodes").json()["nodes"]
    if json:
        print_json(nodes=found)
        return
    job_table(found, "", table_width(width), COLUMNS).print()


def _heard(node: Node) -> str:
    return f"{short_duration(node['last_seen_s'])} ago" if node["last_seen_s"] is not None else "not yet"


def _drained(node: Node) -> str:
    drain = node["drain"]
    return f"by {drain['by']}: {drain['reason']}" if drain is not None else "-"


COLUMNS = (
    Column("NODE", lambda node, _: node["id"], least=12),
    Column("STATE", lambda node, _: node["state"]),
    Column("DEVICES(free/all)", lambda node, _: f"{node['free']}/{node['devices']}"),
    Column("HEARD", lambda node, _: _heard(node)),
    Column("ADDRESS", lambda node, _: node["address"], keep=1),
    Column("DRAINED", lambda node, _: _drained(node), least=20, prose=True),
)
