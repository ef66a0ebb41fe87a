"""`jct team`, `user`, `queues`, `class`: who may have how much. `set` makes what is not there yet."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json
from scheduler.cli.output import print_json, say, terminal_width, visible
from scheduler.core.errors import Code, JctError

NONE = "none"
Action = Annotated[str, typer.Argument(metavar="[ls|create|set|rm]", help="List, make, make or change, or remove.")]
Name = Annotated[str | None, typer.Argument(metavar="NAME")]
Cap = Annotated[str | None, typer.Option(metavar="N|none", help="At most; `none` for no limit.")]
List = Annotated[str | None, typer.Option(metavar="A,B", help="Names with commas; empty for all.")]
Add = Annotated[int | None, typer.Option(help="Added to the priority of its jobs.")]


def team(
    action: Action = "ls", name: Name = None, max_devices: Cap = None, max_running: Cap = None, max_pending: Cap = None,
    weight: Annotated[float | None, typer.Option(help="Its fair share, against the others'.")] = None,
    priority: Add = None, json: Json = False,
) -> None:  # fmt: skip
    """List teams with what they use, or set a team's caps, weight and priority."""
    fields = {**_caps(max_devices, max_running, max_pending), "weight": weight, "priority": priority}
    _do("teams", "team", action, name, fields, json)


def user(
    action: Action = "ls", name: Name = None, max_devices: Cap = None, max_running: Cap = None, max_pending: Cap = None,
    team: Annotated[str | None, typer.Option(help="Where the person belongs.")] = None, json: Json = False,
) -> None:  # fmt: skip
    """List users with what they use, or set a user's caps."""
    _do("users", "user", action, name, {**_caps(max_devices, max_running, max_pending), "team": team}, json)


def queues(
    action: Action = "ls", name: Name = None, max_devices: Cap = None, max_running: Cap = None, max_pending: Cap = None,
    teams: List = None, priority: Add = None,
    policy: Annotated[str | None, typer.Option(help="Orders its jobs; `none` for the cluster's own.")] = None,
    paused: Annotated[bool | None, typer.Option("--pause/--resume", help="Take jobs, but start none.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """List queues, or set who may use one, its caps, and whether it is paused."""
    policy = "" if policy == NONE else policy
    more = {"teams": _names(teams), "policy": policy, "priority": priority, "paused": paused}
    _do("queues", "queue", action, name, {**_caps(max_devices, max_running, max_pending), **more}, json)


def priority_class(
    action: Action = "ls", name: Name = None, value: Annotated[int | None, typer.Option(help="The priority.")] = None,
    teams: List = None, users: List = None,
    guaranteed: Annotated[
        bool | None, typer.Option("--guaranteed/--best-effort", help="Their minimum is never taken from its jobs.")
    ] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """List priority classes, or set one's value, who may use it, and whether its jobs keep their minimum."""
    fields = {"value": value, "teams": _names(teams), "users": _names(users), "guaranteed": guaranteed}
    _do("priority-classes", "class", action, name, fields, json)


def _caps(devices: str | None, running: str | None, pending: str | None) -> dict[str, Any]:
    """Numbers, or a marker that clears."""
    found = {"max_devices": devices, "max_running": running, "max_pending": pending}
    for key, text in found.items():
        if text is not None and text != NONE and not (text.isascii() and text.isdecimal()):
            message = f"--{key.replace('_', '-')} {text!r} is neither a number nor `none`"
            raise JctError(Code.BAD_SPEC, message, field=key)
    return {key: text if text in (None, NONE) else int(text) for key, text in found.items()}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


def _do(plural: str, word: str, action: str, name: str | None, fields: Mapping[str, Any], json: bool) -> None:
    client = Client.from_config()
    given = {key: None if value == NONE else value for key, value in fields.items() if value is not None}
    match action, name:
        case "ls", None:
            _show(client.call("GET", plural).json()["records"], json)
        case "create", str():
            _show([client.call("POST", plural, body={"name": name, **given}).json()], json)
        case "set", str():
            _show([_set(client, f"{plural}/{quote(name, safe='')}", plural, {"name": name, **given})], json)
        case "rm", str():
            client.call("DELETE", f"{plural}/{quote(name, safe='')}")
            say(f"{word} {visible(name)} removed")
        case _:
            said = f"{action} {name or ''}".rstrip()
            raise JctError(Code.BAD_SPEC, f"say `ls`, `create NAME`, `set NAME` or `rm NAME`; not {said}")


def _set(client: Client, path: str, plural: str, named: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in named.items() if key != "name"}
    try:
        return client.call("PATCH", path, body=fields).json()
    except JctError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return client.call("POST", plural, body=named).json()


def _show(records: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(records=records)
        return
    if not records:
        say("nothing is set up here, so nothing is limited; `set NAME` makes one")
        return
    counted = list(records[0]["fields"].get("use", {}))
    names = [name for name in records[0]["fields"] if name not in ("name", "use", *(f"max_{name}" for name in counted))]
    titles = ["NAME", *(name.upper().replace("_", "-") for name in [*names, *counted])]
    grid(titles, [_row(record, names) for record in records], terminal_width()).print()


def _row(record: dict[str, Any], names: list[str]) -> list[str]:
    fields = record["fields"]
    used = [f"{count}/{_cell(fields[f'max_{name}'])}" for name, count in fields.get("use", {}).items()]
    return [record["name"], *(_cell(fields[name]) for name in names), *used]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "all"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None or value == "" else str(value).lower() if isinstance(value, bool) else str(value)
