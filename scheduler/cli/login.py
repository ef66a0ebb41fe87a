"""`jct login` keeps where jctd is and who we are; `jct config` shows what is kept, and where each value comes from."""

import getpass
import os
import sys
from typing import Annotated

import typer

from scheduler.cli import config
from scheduler.cli.client import Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json
from scheduler.cli.output import print_json, say
from scheduler.core.errors import Code, JctError


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of jctd, such as https://jctd.example:7740.")],
) -> None:
    """Keep a URL and a token for the next calls. The token is read from stdin, or asked for and not shown."""
    token = getpass.getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
    token = token.strip()
    if not token:
        raise JctError(Code.NOT_LOGGED_IN, "no token was given", hint=f"jct login {url} < FILE")
    Client(url, token).call("GET", "jobs", {"limit": 1})
    config.save(url, token)
    say(f"kept in {config.config_dir()}, readable by you only")


def show_config(
    action: Annotated[str, typer.Argument(metavar="[show]")] = "show", json: Json = False,
) -> None:  # fmt: skip
    """Show the settings of this shell and where each comes from; a token is never shown."""
    if action != "show":
        raise JctError(Code.BAD_SPEC, f"there is `jct config show`, not `jct config {action}`")
    rows = [(one.name, one.value, one.origin) for one in config.settings(os.environ)]
    if json:
        print_json(settings=[{"name": name, "value": value, "origin": origin} for name, value, origin in rows])
        return
    grid(("SETTING", "VALUE", "ORIGIN"), [[name, value or "", origin] for name, value, origin in rows]).print()
