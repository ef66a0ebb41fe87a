"""`jct nodes` and `jct gpus`."""

from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json
from scheduler.cli.output import print_json
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
    grid(titles, rows).print()


def gpus(json: Json = False) -> None:
    """List devices and who has them."""
    found = Client.from_config().call("GET", "devices").json()["devices"]
    if json:
        print_json(devices=found)
        return
    rows = [
        [
            device["id"],
            device["node"],
            device["kind"],
            f"{device['memory_bytes'] / 2**30:.0f} GiB" if device["memory_bytes"] is not None else "-",
            _state(device),
            f"job {device['job']}" if device["job"] is not None else "-",
        ]
        for device in found
    ]
    grid(("DEVICE", "NODE", "KIND", "MEMORY", "STATE", "HELD BY"), rows).print()


def _drained(item: dict[str, Any]) -> str:
    drain = item["drain"]
    return f"by {drain['by']}: {drain['reason']}" if drain is not None else "-"


def _state(device: dict[str, Any]) -> str:
    """With why it is so; what is held or unhealthy may be drained as well."""
    state, reason = device["state"], device["reason"]
    parts = [] if state == "drained" else [f"{state}: {reason}" if reason else state]
    parts += [f"drained {_drained(device)}"] if device["drain"] is not None else []
    return "; ".join(parts)
