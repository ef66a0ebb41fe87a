"""`jct token`, `jct audit`, `jct usage`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import local_time, print_json, say, terminal_width
from scheduler.cli.table import Column, job_table
from scheduler.core.errors import Code, JctError


def token(
    action: Annotated[str, typer.Argument(metavar="[ls|create|revoke]", help="List, make, or end one.")] = "ls",
    what: Annotated[str | None, typer.Argument(metavar="NAME|ID", help="A new token's name; an old one's id.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose it is; yours by default.")] = None,
    team: Annotated[str | None, typer.Option(help="Of which team; yours by default.")] = None,
    role: Annotated[
        str, typer.Option(help="viewer, user, team-lead, operator, admin or agent.")
    ] = "user",
    expires: Annotated[str | None, typer.Option(help="A duration, such as 30d.")] = None,
    json: Json = False,
) -> None:
    """List tokens, make one (its secret is shown this once), or revoke one."""
    client = Client.from_config()
    match action, what:
        case "ls", None:
            _list(client.call("GET", "tokens").json()["tokens"], json)
        case "create", str():
            body = {"name": what, "user": user, "team": team, "role": role, "expires_in": expires}
            made = client.call("POST", "tokens", body={k: v for k, v in body.items() if v is not None}).json()
            say(f"token {made['id']} of {made['user']} ({made['role']} in {made['team']}); it is shown only now:")
            print_json(token=made) if json else print(made["secret"])
        case "revoke", str() if what.isdecimal():
            client.call("DELETE", f"tokens/{int(what)}")
            say(f"token {int(what)} is revoked")
        case _:
            raise JctError(Code.BAD_SPEC, "say `ls`, `create NAME` or `revoke ID`")


def _list(tokens: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(tokens=tokens)
        return
    rows = [
        [
            str(item["id"]), item["name"], item["user"], item["team"], item["role"], local_time(item["created"]),
            "revoked" if item["revoked"] else local_time(item["expires"]) if item["expires"] else "never",
        ]
        for item in tokens
    ]  # fmt: skip
    grid(("ID", "NAME", "USER", "TEAM", "ROLE", "CREATED", "EXPIRES"), rows, terminal_width()).print()


AUDIT_COLUMNS = (
    Column("TIME", lambda entry, _: local_time(entry["time"])),
    Column("WHO", lambda entry, _: entry["actor"], least=20),
    Column("WHAT, OLD -> NEW", lambda entry, _: _said(entry), least=24, prose=True),
)


def audit(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many, the newest.")] = 50,
    width: Width = None,
    json: Json = False,
) -> None:
    """Every admin act and every denied act, newest first; for admins."""
    page = Client.from_config().call("GET", "audit", {"limit": limit}).json()
    if json:
        print_json(**page)
        return
    job_table(page["entries"], "", table_width(width), AUDIT_COLUMNS).print()


def _said(entry: dict[str, Any]) -> str:
    """`cancel` of `job 12`, but `set team` of `team nlp` without saying `team` twice."""
    denied = "" if entry["allowed"] else "DENIED"
    what = f"{entry['action']} {entry['target'].removeprefix(entry['action'].rpartition(' ')[2] + ' ')}"
    return ": ".join(part for part in (denied, what, _change(entry["old"], entry["new"])) if part)


_UNSAID = frozenset({"name", "capped_lease"})
"""Of something new: what it is called stands before, and what the core keeps of it is nobody's word."""


def _change(old: Any, new: Any) -> str:
    """Only what differs, and of what is new only what has been said."""
    if not isinstance(new, dict):
        return ""
    if not isinstance(old, dict):
        said = (key for key in new if new[key] not in (None, "", []) and key not in _UNSAID)
        return ", ".join(_field(key, new[key], "=") for key in said)
    keys = [key for key in new if new[key] != old.get(key)]
    return ", ".join(f"{_field(key, old.get(key), ': ')} -> {_field('', new[key], '')}" for key in keys)


def _field(key: str, value: Any, between: str) -> str:
    """Moments are kept in microseconds, as which nobody reads them; None, True and lists are Python's words."""
    if key.endswith("_us") and isinstance(value, int):
        key = key.removesuffix("_us")
        value = datetime.fromtimestamp(value // 1_000_000, UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        value = str(value).lower()
    return f"{key}{between}{value}"


def usage(json: Json = False) -> None:
    """GPU-hours by team and user: in all, on steps that were lost, and of late."""
    rows = Client.from_config().call("GET", "usage").json()["rows"]
    if json:
        print_json(rows=rows)
        return
    cells = [
        [row["team"], row["user"], *(f"{row[key] / 3600:.2f}" for key in ("gpu_s", "lost_gpu_s", "recent_gpu_s"))]
        for row in rows
    ]
    grid(("TEAM", "USER", "GPU-HOURS", "LOST", "RECENT"), cells, terminal_width()).print()
