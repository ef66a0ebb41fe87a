"""Where jctd is and who we are: JCT_URL and JCT_TOKEN, else the two files that `jct up` writes."""

import json
import os
from pathlib import Path

from scheduler.core.errors import Code, JctError


def config_dir() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "jctd"


def load() -> tuple[str, str]:
    """(URL, token); the token is empty where there is none. Raises JctError UNREACHABLE where no URL is known."""
    url = os.environ.get("JCT_URL") or _saved_url()
    token = os.environ.get("JCT_TOKEN") or _read(config_dir() / "token").strip()
    if not url:
        hint = "start one with `jct up`, or set JCT_URL and JCT_TOKEN"
        raise JctError(Code.UNREACHABLE, "no jctd is known to this account", hint=hint)
    return url.rstrip("/"), token


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
