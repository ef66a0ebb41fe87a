"""`jct doctor`: what on this machine would keep jctd, an agent or a job from working, and what to do about it."""

import importlib.metadata
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from scheduler.cli.client import Client
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import parse_time, print_json
from scheduler.cli.table import Column, job_table
from scheduler.core.errors import JctError

OK, WARN, FAIL = "ok", "warning", "FAILED"
MAX_OFFSET_S = 5.0
SHM_BYTES = 1 << 30
DISK_BYTES = 5 << 30
CONNECT_S = 3.0


@dataclass(frozen=True)
class Finding:
    check: str
    result: str
    text: str


COLUMNS = (
    Column("CHECK", lambda finding, _: finding["check"]),
    Column("RESULT", lambda finding, _: finding["result"]),
    Column("WHAT", lambda finding, _: finding["text"], least=24, prose=True),
)


def doctor(
    state: Annotated[Path | None, typer.Option(help="The daemon's state folder, where it is on this machine.")] = None,
    width: Width = None,
    json: Json = False,
) -> int:
    """Check GPUs, clock, ports, memory, disk, broker, database, keys and packages. Exits 1 where something failed."""
    found = list(examine(state))
    findings = [vars(finding) for finding in found]
    if json:
        print_json(findings=findings)
    else:
        job_table(findings, "", table_width(width), COLUMNS).print()
    return int(any(item.result == FAIL for item in found))


def examine(state: Path | None) -> Iterator[Finding]:
    """Every check once; one that breaks is a finding too."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        nvml, clock, ports, shared_memory, lambda: disk(state), broker, lambda: database(state), lambda: keys(state),
        packages,
    ]  # fmt: skip
    for check in checks:
        try:
            yield from check()
        except Exception as error:
            yield Finding(getattr(check, "__name__", "check"), FAIL, f"the check itself failed: {error}")


def nvml() -> Iterator[Finding]:
    import pynvml

    try:
        pynvml.nvmlInit()
        count, driver = pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion()
        yield Finding("nvml", OK, f"{count} GPU(s), driver {driver}")
    except pynvml.NVMLError as error:
        text = str(error)
        bad = "mismatch" in text.lower()
        hint = "; reboot, or reload the driver" if bad else ": this machine offers CPU or fake devices only"
        yield Finding("nvml", FAIL if bad else WARN, text + hint)


def clock() -> Iterator[Finding]:
    try:
        before = time.time()
        answered = Client.from_config().call("GET", "jobs", {"limit": 1}).json()["now"]
        offset_s = parse_time(answered).timestamp() - (before + time.time()) / 2
    except JctError as error:
        yield Finding("daemon", WARN, error.message)
        return
    yield Finding("daemon", OK, "it answers")
    good = abs(offset_s) <= MAX_OFFSET_S
    hint = "" if good else "; start an NTP client: times in tables would mislead (nothing else depends on clocks)"
    yield Finding("clock", OK if good else WARN, f"{offset_s:+.1f} s against jctd{hint}")


def ports() -> Iterator[Finding]:
    for port, whose in ((7740, "REST"), (7741, "agents")):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
                yield Finding("port", OK, f"{port} ({whose}) is free")
            except OSError as error:
                yield Finding("port", WARN, f"{port} ({whose}): {error.strerror}; fine where jctd itself has it")


def shared_memory() -> Iterator[Finding]:
    free = shutil.disk_usage("/dev/shm").free  # noqa: S108 - looked at, not written
    good = free >= SHM_BYTES
    hint = "" if good else "; data loaders with many workers need more: --shm-size in containers"
    yield Finding("shared memory", OK if good else WARN, f"{free / 2**30:.1f} GiB free in /dev/shm{hint}")


def disk(state: Path | None) -> Iterator[Finding]:
    where = state if state is not None and state.exists() else Path.home()
    free = shutil.disk_usage(where).free
    read_only = bool(os.statvfs(where).f_flag & os.ST_RDONLY)
    good = free >= DISK_BYTES and not read_only
    text = f"{free / 2**30:.1f} GiB free on the disk of {where}" + (", which is read-only" if read_only else "")
    yield Finding("disk", FAIL if read_only else OK if good else WARN, text)


def broker() -> Iterator[Finding]:
    url = os.environ.get("JCT_SERVER_MQTT_URL")
    if not url:
        yield Finding("broker", OK, "none is named in JCT_SERVER_MQTT_URL, and none is needed")
        return
    parts = urlsplit(url)
    place = parts.hostname or "", parts.port or (8883 if parts.scheme == "mqtts" else 1883)
    try:
        socket.create_connection(place, CONNECT_S).close()
        yield Finding("broker", OK, f"{place[0]}:{place[1]} answers")
    except OSError as error:
        yield Finding("broker", WARN, f"{place[0]}:{place[1]}: {error}; scheduling goes on without it")


def database(state: Path | None) -> Iterator[Finding]:
    if state is None:
        return
    file = state / "jctd.db"
    if not file.exists():
        yield Finding("database", WARN, f"there is no {file}: a first start makes it, or it is PostgreSQL")
        return
    import contextlib
    import sqlite3
    from urllib.parse import quote

    with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        sound = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    good = journal == "wal" and sound == "ok"
    yield Finding("database", OK if good else FAIL, f"{file}: journal mode {journal}, check {sound}")
    yield from _private(file)


def keys(state: Path | None) -> Iterator[Finding]:
    if state is None:
        return
    for name in ("daemon.key_secret", "secrets.key", "admin-token"):
        if (state / name).exists():
            yield from _private(state / name)


def _private(file: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(file.stat().st_mode)
    good = not mode & 0o077
    text = f"{file.name} has mode {mode:04o}" + ("" if good else f"; others can read it: chmod 600 {file}")
    yield Finding("keys", OK if good else FAIL, text)


def packages() -> Iterator[Finding]:
    """Packages whose names or versions are known to get in the way (docs/faults.md, B58)."""
    clashes = {
        "pynvml": "it shadows nvidia-ml-py and warns on import: pip uninstall pynvml",
        "gputil": "it is abandoned, and nothing here needs it",
        "asyncio-mqtt": "its present name is aiomqtt; it breaks with paho-mqtt 2: pip uninstall asyncio-mqtt",
    }
    found = 0
    for name, why in clashes.items():
        if (version := _version(name)) is not None:
            found += 1
            yield Finding("packages", WARN, f"{name} {version} is installed: {why}")
    paho = _version("paho-mqtt")
    if paho is not None and int(paho.split(".")[0]) < 2:
        found += 1
        yield Finding("packages", FAIL, f"paho-mqtt {paho} is too old for aiomqtt: pip install -U paho-mqtt")
    if not found:
        yield Finding("packages", OK, f"no clash; Python {sys.version.split()[0]}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
