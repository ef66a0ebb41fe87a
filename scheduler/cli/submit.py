"""`jct submit`: the job file, flags that beat it, and what only this machine can see."""

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.digest import key_of
from scheduler.cli.options import Json, gpu_range
from scheduler.cli.output import print_json, say, visible
from scheduler.cli.wait import until_ended
from scheduler.core.errors import Code, JctError
from scheduler.durations import BadDuration, format_duration, parse_duration
from scheduler.jobfile.read import read_text

TRIES = 4
PAUSE_S = 0.5


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML or JSON job file; - for standard input.")],
    name: Annotated[str | None, typer.Option(help="The job's name.")] = None,
    team: Annotated[str | None, typer.Option(envvar="JCT_TEAM", help="The team it belongs to.")] = None,
    priority: Annotated[str | None, typer.Option(help="A number or a class; higher goes first.")] = None,
    gpus: Annotated[str | None, typer.Option(help="How many: N, or MIN-MAX.")] = None,
    note: Annotated[str | None, typer.Option(help="A word to yourself.")] = None,
    queue: Annotated[str | None, typer.Option(help="Where it waits.")] = None,
    after: Annotated[str | None, typer.Option(help="Jobs to wait for: 12, or afterok:12:13,afterany:14.")] = None,
    begin: Annotated[str | None, typer.Option(help="Not before this moment, or now+2h.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Such as 90m, 1d12h or 2-12.")] = None,
    array: Annotated[str | None, typer.Option(help="One job an index: 0-9, or 0-9%2 for two at once.")] = None,
    parsable: Annotated[bool, typer.Option("-q", "--parsable", help="Print the id alone.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and exit as it did.")] = False,
    json: Json = False,
) -> int:
    """Submit a job file. Flags beat the file."""
    document, folder = _read(file)
    flags = {"name": name, "team": team, "gpus": gpu_range(gpus), "note": note, "queue": queue}
    flags |= {"priority": priority_of(priority), "begin": moment(begin), "time_limit": time_limit, "array": array}
    flags |= {"after": int(after) if after is not None and after.isdecimal() else after}
    document |= {key: value for key, value in flags.items() if value is not None}
    _resolve_paths(document, folder)
    return send(document, parsable=parsable, wait=wait, json=json)


def send(document: dict[str, Any], *, parsable: bool, wait: bool, json: bool) -> int:
    """Submit a whole document and say so; the exit code."""
    body = {"job": document, **spec_key_of(document), **_secrets(document)}
    client = Client.from_config()
    job = _send(client, body)
    if json and not wait:
        print_json(job=job)
    elif parsable:
        print(job["id"], flush=True)
    else:
        limit = f", limit {format_duration(job['time_limit_s'])}" if job["time_limit_s"] else ""
        print(f"Submitted {_ids(job['id'], document)}: {visible(job['name'])}{limit}", flush=True)
    return until_ended(client, [job["id"]], json=json) if wait else 0


def _ids(first: int, document: dict[str, Any]) -> str:
    """Those of an array follow each other."""
    from scheduler.jobfile import parse_document

    count = len(parse_document({"team": "default", **document}).array)
    return f"jobs {first} to {first + count - 1}" if count > 1 else f"job {first}"


def read_document(file: str) -> dict[str, Any]:
    """The document, with its paths made absolute."""
    document, folder = _read(file)
    _resolve_paths(document, folder)
    return document


def _read(file: str) -> tuple[dict[str, Any], Path]:
    """The document, and the folder that its paths start from."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise JctError(Code.BAD_SPEC, f"{file} is no text in UTF-8") from None
    except OSError as error:
        raise JctError(Code.BAD_SPEC, f"cannot read {file}: {error.strerror}") from None
    return read_text(text), Path.cwd() if file == "-" else Path(file).resolve().parent


def priority_of(text: str | None) -> int | str | None:
    """A number, or a class's name."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


def moment(text: str | None) -> str | None:
    """`now+2h` by this machine's clock; else as it stands."""
    if text is None or not text.startswith("now+"):
        return text
    from datetime import UTC, datetime, timedelta

    try:
        later = datetime.now(UTC) + timedelta(seconds=parse_duration(text[4:], bare="seconds"))
    except BadDuration as error:
        raise JctError(Code.BAD_SPEC, f"--begin: {error}", field="begin") from None
    return later.isoformat(timespec="seconds")


def _secrets(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Values of env_from, from this environment."""
    names = [name for name in document.get("env_from", []) if isinstance(name, str)]
    if missing := [name for name in names if name not in os.environ]:
        message = f"env_from: {missing[0]} is not set here, so there is no value to hand over"
        raise JctError(Code.BAD_SPEC, message, field="env_from")
    return {"secrets": {name: os.environ[name] for name in names}} if names else {}


def _resolve_paths(document: dict[str, Any], folder: Path) -> None:
    """Relative paths mean the job file's folder; where `workdir` is left out, it is that folder."""
    workdir = document.get("workdir", ".")
    if isinstance(workdir, str):
        document["workdir"] = str((folder / Path(workdir).expanduser()).resolve())
    profile = document.get("profile")
    if isinstance(profile, str) and profile.endswith(".json"):  # else a built-in model's name
        document["profile"] = str((folder / Path(profile).expanduser()).resolve())
    checkpoint = document.get("checkpoint")
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("dir"), str) and "://" not in checkpoint["dir"]:
        document["checkpoint"] = {**checkpoint, "dir": str((folder / Path(checkpoint["dir"]).expanduser()).resolve())}


def spec_key_of(document: dict[str, Any]) -> dict[str, str]:
    """Refuses what can be seen to fail from here, all of it at once; the rest is for jctd and the worker to judge."""
    from scheduler.jobfile import parse_document

    parse_document({"team": "default", **document})
    workdir = document["workdir"]
    if isinstance(workdir, str) and not Path(workdir).is_dir():
        raise JctError(Code.BAD_SPEC, f"workdir: {workdir} is no folder", field="workdir")
    if isinstance(workdir, str) and isinstance(document.get("entrypoint"), str):
        return {"spec_key": key_of(document)}
    return {}


def _send(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Again where the answer was lost: the key makes that the same job."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    for attempt in range(TRIES):
        try:
            return client.call("POST", "jobs", body=body, headers=headers).json()
        except JctError as error:
            if error.code not in {Code.UNREACHABLE, Code.BUSY} or attempt == TRIES - 1:
                raise
            if error.code is Code.BUSY:
                say("jct: jctd is busy; trying again")
            time.sleep(PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")
