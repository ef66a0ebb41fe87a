"""Where jctd is and who we are: JCT_URL and JCT_TOKEN, else the two files that `jct up` and `jct login` write."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scheduler.core.errors import Code, JctError


def config_dir() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "jctd"


def load() -> tuple[str, str]:
    """(URL, token); the token is empty where there is none. Raises JctError UNREACHABLE where no URL is known."""
    url = os.environ.get("JCT_URL") or _saved_url()
    token = os.environ.get("JCT_TOKEN") or _read(config_dir() / "token").strip()
    if not url:
        hint = "start one with `jct up`, or name one: `jct login URL`, or JCT_URL and JCT_TOKEN"
        raise JctError(Code.UNREACHABLE, "no jctd is known to this account", hint=hint)
    return url.rstrip("/"), token


class Setting(NamedTuple):
    """value: None where there is none, and of a token only whether there is one. origin: a variable or a file."""

    name: str
    value: str | None
    origin: str


def settings(environment: Mapping[str, str]) -> list[Setting]:
    """What a call from this shell would use, and where each comes from."""
    folder = config_dir()
    found = []
    saved = {"JCT_URL": (_saved_url(), "client.json"), "JCT_TOKEN": (_read(folder / "token").strip(), "token")}
    for name in ("JCT_URL", "JCT_TOKEN", "JCT_TEAM", "JCT_CA_FILE"):
        kept, file = saved.get(name, ("", ""))
        value = environment.get(name) or kept or None
        origin = "environment" if environment.get(name) else str(folder / file) if kept else "not set"
        found.append(Setting(name, "set" if value and name == "JCT_TOKEN" else value, origin))
    return found


def save(url: str, token: str | None) -> None:
    """For the CLI's next calls. The token's file is readable by its owner only; None leaves it as it is."""
    folder = config_dir()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "client.json").write_text(json.dumps({"url": url}) + "\n")
    if token is None:
        return
    secret = folder / "token"
    secret.unlink(missing_ok=True)
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")


def _saved_url() -> str:
    path = config_dir() / "client.json"
    try:
        return str(json.loads(_read(path) or "{}").get("url", ""))
    except (ValueError, AttributeError):
        raise JctError(Code.BAD_SPEC, f"{path} is no valid JSON", hint="remove it, or set JCT_URL") from None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise JctError(Code.NOT_ALLOWED, f"cannot read {path}: {error.strerror}") from None
