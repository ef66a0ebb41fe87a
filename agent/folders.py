"""The attempts folder: one folder an attempt, `JOB.N`, with spec, logs and last words. It outlives the agent."""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from scheduler.protocol.messages import Phase, Report
from scheduler.protocol.spec import AttemptSpec

_T = TypeVar("_T")
Attempt = tuple[int, int]
KEPT = 200
MAX_BYTES = 16 << 20


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
    """All reading and writing below `attempts/`.

    shared: other accounts own folders in there; they may pass through to their own, and see nothing else.
    """

    def __init__(self, root: Path, shared: bool = False) -> None:
        self.root = root / "attempts"
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shared:
            root.chmod(0o711)
            self.root.chmod(0o711)
            (root / "ports").mkdir(exist_ok=True)
            (root / "ports").chmod(0o1777)

    def path(self, attempt: Attempt) -> Path:
        return self.root / f"{attempt[0]}.{attempt[1]}"

    def make(self, attempt: Attempt, spec: AttemptSpec, owner: tuple[int, int] | None = None) -> Path:
        """The attempt's folder with its spec.json, durable before anything is started. Raises OSError.

        owner: uid and gid of whom it is given to, and then it is another's to write in; None for the agent's own.
        """
        folder = self.path(attempt)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(folder / "spec.json", msgspec.json.encode(spec))
        if owner is not None:
            os.chown(folder / "spec.json", *owner)
            os.chown(folder, *owner)
        return folder

    def open_log(self, attempt: Attempt, member: int) -> int:
        """A descriptor that only appends; its existence also says that the member was once spawned."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.log(attempt, member), flags, 0o600)
        owner = self.path(attempt).stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor

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
            os.close(os.open(folder / "done", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        old = sorted(self.root.glob("*/done"), key=lambda mark: mark.lstat().st_mtime)[:-KEPT]
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
    """None where the file is missing, cut off or no plain file: the caller has a rule for that."""
    try:
        with open_plainly(path) as descriptor:
            return msgspec.json.decode(os.pread(descriptor, MAX_BYTES, 0), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


@contextlib.contextmanager
def open_plainly(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a regular file with one name. The folder may be a job's own, which could lay a link to a
    stranger's file there. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise PermissionError(errno.EPERM, "it is no plain file of its own")
        yield descriptor
    finally:
        os.close(descriptor)
