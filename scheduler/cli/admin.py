"""`jct admin`: a backup of the daemon's data and its restoration; the broker's ACL file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.client import Client
from scheduler.cli.output import say
from scheduler.core.errors import Code, JctError

SEES_ALL = ("admin", "operator")


def admin(
    action: Annotated[str, typer.Argument(metavar="backup|restore|mqtt-acl", help="What to do.")],
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The backup.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="What jctd has as --state; of `jct up` ~/.local/state/jctd/daemon.")
    ] = None,
) -> None:
    """Back the database up while the daemon runs, restore it while it does not, or print Mosquitto's ACL file."""
    match action, file, state:
        case "backup", Path(), Path():
            from scheduler.store.backup import backup

            say(backup(state, file))
        case "restore", Path(), Path():
            from scheduler.store.backup import restore

            say(restore(state, file))
        case "mqtt-acl", None, None:
            sys.stdout.write(_acl())
        case _:
            hint = "jct admin backup FILE --state FOLDER; jct admin restore FILE --state FOLDER; jct admin mqtt-acl"
            raise JctError(Code.BAD_SPEC, "that is no call of `jct admin`", hint=hint)


def _acl() -> str:
    """One broker user a jctd user, with the teams of that user's tokens."""
    from scheduler.transport.mqtt import acl

    tokens = Client.from_config().call("GET", "tokens").json()["tokens"]
    living = [token for token in tokens if token["revoked"] is None and token["role"] != "agent"]
    return acl([(token["user"], None if token["role"] in SEES_ALL else token["team"]) for token in living])
