"""`jct top`: one job as it runs: what each of its devices does, and the network of its nodes."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.grid import Grid
from scheduler.cli.measured import (
    KIND,
    MEMORY,
    PLACE,
    POWER,
    TEMPERATURE,
    UTIL,
    Device,
    footnotes,
    memory,
    note,
    number,
    percent,
    rate,
    unknown,
    value,
)
from scheduler.cli.options import Id, Json, Width, table_width
from scheduler.cli.output import folded, print_json
from scheduler.cli.table import Column, job_table

if TYPE_CHECKING:
    from rich.console import Group

WATCH_S = 2.0
SAMPLED_S = 0.5
"""How often agents look at a device."""
_SHOWN = {
    "busy_percent": "util", "sm_active_percent": "SM", "memory_used_bytes": "memory", "power_w": "power",
    "temperature_c": "temp",
}  # fmt: skip
_NODE_SHOWN = {"busy_percent": "cpu", "memory_used_bytes": "memory", "tcp_retransmits_per_s": "resent"}

_DEVICES = (
    Column("RANK", lambda device, _: str(device["rank"]) if device["rank"] is not None else "-", right=True),
    PLACE,
    KIND,
    UTIL,
    Column("SM", lambda device, _: percent(device, "sm_active_percent"), right=True, keep=3),
    MEMORY,
    POWER,
    TEMPERATURE,
    Column("PCIE", lambda device, _: _traffic(device, "pcie"), right=True, keep=4),
    Column("NVLINK", lambda device, _: _traffic(device, "nvlink"), right=True, keep=1),
    Column("NOTE", lambda device, _: "; ".join(filter(None, (swinging(device), note(device, _SHOWN)))), least=16),
)
_NODES = (
    Column("NODE", lambda node, _: node["id"], least=6),
    Column("LOAD", lambda node, _: number(node, "load_1m", ""), right=True),
    Column("CPU", lambda node, _: percent(node, "busy_percent"), right=True),
    Column("STOLEN", lambda node, _: percent(node, "steal_percent"), right=True, keep=1),
    Column("MEMORY", lambda node, _: memory(node), right=True),
    Column("NET IN", lambda node, _: _network(node, "rx_bytes_per_s"), right=True),
    Column("NET OUT", lambda node, _: _network(node, "tx_bytes_per_s"), right=True),
    Column("LOOPBACK", lambda node, _: _network(node, "rx_bytes_per_s", loopback=True), right=True, keep=2),
    Column("RESENT", lambda node, _: number(node, "tcp_retransmits_per_s", "/s"), right=True),
    Column("NOTE", lambda node, _: _node_note(node), least=16),
)


def top(
    id: Id,
    once: Annotated[bool, typer.Option("--once", help="Print it once, also on a terminal.")] = False,
    width: Width = None,
    json: Json = False,
) -> None:
    """Show what a job's devices and nodes do now; on a terminal again every two seconds, until its end."""
    client = Client.from_config()
    if json:
        job, devices, nodes = _ask(client, id)
        print_json(job=job, devices=devices, nodes=nodes)
    elif sys.stdout.isatty() and not once:
        _watch(client, id, width)
    else:
        head, grids = _picture(*_ask(client, id), width)
        columns = table_width(width)
        print("\n".join(folded(head, columns) if columns else [head]))
        for grid in grids:
            print()
            grid.print()
        if notes := [line for at, grid in enumerate(grids) for line in footnotes(grid, 1 - at, columns)]:
            print("\n" + "\n".join(notes))


def _ask(client: Client, id: int) -> tuple[dict[str, Any], list[Device], list[dict[str, Any]]]:
    """The job, the devices that it holds in the order of their ranks, and their nodes."""
    job = client.job(id)
    ranks = {one["device"]: one["rank"] for attempt in job["attempts"][-1:] for one in attempt["members"]}
    found = client.call("GET", "devices").json()["devices"]
    step_s = job["step_time_s"]
    held = [device for device in found if device["job"] == id]
    devices = [{**device, "rank": ranks.get(device["id"]), "step_time_s": step_s} for device in held]
    devices.sort(key=lambda device: (device["rank"] is None, device["rank"] or 0))
    places = {device["node"] for device in devices}
    nodes = [node for node in client.call("GET", "nodes").json()["nodes"] if node["id"] in places]
    return job, devices, nodes


def _picture(
    job: dict[str, Any], devices: list[Device], nodes: list[dict[str, Any]], width: int | None
) -> tuple[str, list[Grid]]:
    columns = table_width(width)
    if not devices:
        reason = job["reason"]["text"] if job["reason"] is not None else ""
        return "; ".join(filter(None, [f"{_head(job)}: it holds no device now", reason])), []
    return _head(job), [job_table(devices, "", columns, _DEVICES), job_table(nodes, "", columns, _NODES)]


def _head(job: dict[str, Any]) -> str:
    step = f", step {job['step']}" if job["step"] is not None else ""
    total = f" of {job['total_steps']}" if step and job["total_steps"] else ""
    loss = f", loss {job['loss']:.4g}" if job["loss"] is not None else ""
    each = f", {job['step_time_s']:.3g} s each" if step and job["step_time_s"] is not None else ""
    idle = f", {job['bubble_share']:.0%} bubbles" if job["bubble_share"] is not None else ""
    return f"job {job['id']} {job['name']}, {job['state']}{step}{total}{each}{idle}{loss}"


def _watch(client: Client, id: int, width: int | None) -> None:
    """Until Ctrl-C, or the job's end."""
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            job, devices, nodes = _ask(client, id)
            live.update(_drawn(*_picture(job, devices, nodes, width)), refresh=True)
            if job["result"] is not None:
                return
            time.sleep(WATCH_S)


def _drawn(head: str, grids: Sequence[Grid]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(head)]
    for grid in grids:
        parts += [Text(""), grid]
    return Group(*parts)


def swinging(device: Device) -> str:
    """That its utilisation swings, and whether with the steps of the job on it (BUB-02); empty where it does not."""
    depth, period_s, step_s = value(device, "swing_percent"), value(device, "swing_period_s"), device["step_time_s"]
    if depth is None or period_s is None:
        return ""
    from policies.swings import is_of_steps

    if step_s is not None and is_of_steps(period_s, step_s, SAMPLED_S):
        return f"util swings by {depth:.0f} points with every step: bubbles"
    return f"util swings by {depth:.0f} points every {period_s:.1f} s"


def _traffic(device: Device, link: str) -> str:
    """Both ways together."""
    measured = device["measured"]
    return rate(measured, f"{link}_tx_bytes_per_s", f"{link}_rx_bytes_per_s") if measured is not None else "-"


def _network(node: dict[str, Any], name: str, loopback: bool = False) -> str:
    """Of all physical interfaces, else of the loopback ones; of virtual ones where a container has no others."""
    measured = node["measured"]
    found = [one for one in measured["interfaces"] if one["up"]] if measured is not None else []
    wanted = [one for one in found if (one["kind"] == "loopback") is loopback]
    chosen = [one for one in wanted if one["kind"] == "physical"] or wanted
    values = {one["name"]: one["values"].get(name) for one in chosen}
    return rate({"values": values}, *values)


def _node_note(node: dict[str, Any]) -> str:
    drain, measured = node["drain"], node["measured"]
    parts = [] if node["state"] == "UP" else [node["state"]]
    parts += [f"drained by {drain['by']}: {drain['reason']}"] if drain is not None else []
    if measured is None:
        return "; ".join([*parts, "not measured yet"])
    parts += unknown(measured, _NODE_SHOWN)
    parts += [f"{measured['late']} readings were late"] if measured["late"] else []
    return "; ".join(parts)
