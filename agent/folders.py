"""The attempts folder: one folder an attempt, `JOB.N`, with spec, logs and last words. It outlives the agent."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from scheduler.protocol.messages import Phase, Report
from scheduler.protocol.spec import AttemptSpec

_T = TypeVar("_T")
Attempt = tuple[int, int]
KEPT = 200


class ShimRecord(msgspec.Struct, frozen=True):
    """shim.json: who the shim is."""

    boot: str
    pid: int
    start_ticks: int
    nonce: str
    protocol: int
    job: int
    attempt: int


class Folders:
    """All reading and writing below `attempts/`."""

    def __init__(self, root: Path) -> None:
        self.root = root / "attempts"
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, attempt: Attempt) -> Path:
        return self.root / f"{attempt[0]}.{attempt[1]}"

    def make(self, attempt: Attempt, spec: AttemptSpec) -> Path:
        """The attempt's folder with its spec.json, durable before anything is started. Raises OSError."""
        folder = self.path(attempt)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(folder / "spec.json", msgspec.json.encode(spec))
        return folder

    def open_log(self, attempt: Attempt, member: int) -> int:
        """A descriptor that only appends; its existence also says that the member was once spawned."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.log(attempt, member), flags, 0o600)

    def log(self, attempt: Attempt, member: int) -> Path:
        return self.path(attempt) / f"member-{member}.log"

    def open_attempts(self) -> Iterator[Attempt]:
        """Those whose end the database does not know yet."""
        for folder in sorted(self.root.iterdir()):
            job, _, number = folder.name.partition(".")
            if job.isdigit() and number.isdigit() and not (folder / "done").exists():
                yield int(job), int(number)

    def unfinished(self, fake: bool) -> Iterator[Attempt]:
        """Attempts, fake or real ones, that this agent may still have to speak about."""
        for attempt in self.open_attempts():
            if any(self.path(attempt).glob("fake-*.json")) is fake:
                yield attempt

    def members(self, attempt: Attempt) -> list[int]:
        logs = self.path(attempt).glob("member-*.log")
        return sorted(int(log.stem.removeprefix("member-")) for log in logs)

    def shim(self, attempt: Attempt) -> ShimRecord | None:
        return _read(self.path(attempt) / "shim.json", ShimRecord)

    def spec(self, attempt: Attempt) -> AttemptSpec | None:
        return _read(self.path(attempt) / "spec.json", AttemptSpec)

    def last_word(self, attempt: Attempt, member: int) -> Report | None:
        report = _read(self.path(attempt) / f"exit-{member}.json", Report)
        return report if report is not None and report.phase is Phase.GONE else None

    def done(self, attempt: Attempt) -> None:
        """The database knows the end. The logs of the newest attempts stay for their readers."""
        folder = self.path(attempt)
        with contextlib.suppress(OSError):  # a full disk or no folder: the next agent tells the same end once more
            (folder / "done").touch()
        old = sorted(self.root.glob("*/done"), key=lambda mark: mark.stat().st_mtime)[:-KEPT]
        for mark in old:
            shutil.rmtree(mark.parent, ignore_errors=True)


def write_durably(path: Path, data: bytes) -> None:
    """The whole file or none of it, also after a power cut."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path, kind: type[_T]) -> _T | None:
    """None where the file is missing or cut off: the caller has a rule for that."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
