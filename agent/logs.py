"""Members' logs: files that only grow, of which the oldest part may be given back to the disk.

A member writes straight to its file. Over the cap a hole is punched at the file's head, so that offsets stay true and a
reader sees where something is missing (LIFECYCLE 55). Beside each log lies an index of when it had which length, for
those who ask for the newest minutes.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
import time
from pathlib import Path

import structlog

from agent.folders import Attempt, Folders, open_plainly
from scheduler.protocol.messages import Chunk, Read

log = structlog.get_logger()

CAP_BYTES = 256 << 20
SLACK = 8
"""A hole is made once a log is longer than its cap by one part in so many."""
LOOK_S = 5.0
BLOCK = 4096
MAX_INDEX_BYTES = 1 << 20

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_ENTRY = struct.Struct("<dQ")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Logs:
    """Reads logs for the daemon, and keeps those of living attempts below their cap.

    cap_bytes: of one member's log; a job may ask for less.
    """

    def __init__(self, folders: Folders, cap_bytes: int = CAP_BYTES) -> None:
        self._folders = folders
        self._cap_bytes = cap_bytes
        self._lengths: dict[Path, int] = {}
        self._unpunchable = False

    def read(self, ask: Read) -> Chunk:
        """Bytes as they were written, from the first that is still there at or after the offset. A negative offset
        counts from the end; `since_s` asks for what was written in so many last seconds."""
        path = self._folders.log((ask.job, ask.attempt), ask.member)
        try:
            with open_plainly(path) as descriptor:
                size = os.fstat(descriptor).st_size
                start = max(0, size + ask.offset) if ask.offset < 0 else min(ask.offset, size)
                if ask.since_s is not None:
                    start = _length_at(_index(path), time.time() - ask.since_s)
                start = _first_data(descriptor, start, size)
                data = os.pread(descriptor, ask.limit, start)
                return Chunk(request=ask.request, offset=start, data=data, size=size)
        except OSError as error:
            missing = f"the log is not on this node: {error.strerror}"
            return Chunk(request=ask.request, offset=0, data=b"", size=0, missing=missing)

    async def keep(self) -> None:
        """For the agent's life."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.look()
            except OSError as error:  # a full disk, a folder that goes meanwhile
                log.warning("logs could not be looked at", error=str(error))

    def look(self) -> None:
        """Note how long each log is by now, and cut off the heads of those that are too long."""
        seen: dict[Path, int] = {}
        for attempt in self._folders.open_attempts():
            cap_bytes = self._cap_of(attempt)
            for member in self._folders.members(attempt):
                path = self._folders.log(attempt, member)
                with contextlib.suppress(OSError):  # what a job lays in its folder instead costs its own log only
                    seen[path] = path.lstat().st_size
                    if seen[path] != self._lengths.get(path):
                        _note_length(_index(path), seen[path])
                        self._cut(path, seen[path], cap_bytes)
        self._lengths = seen

    def _cap_of(self, attempt: Attempt) -> int:
        spec = self._folders.spec(attempt)
        wanted = spec.job.log_bytes if spec is not None else None
        return min(wanted or self._cap_bytes, self._cap_bytes)

    def _cut(self, path: Path, size: int, cap_bytes: int) -> None:
        if self._unpunchable or size <= cap_bytes + cap_bytes // SLACK:
            return
        with open_plainly(path, os.O_WRONLY) as descriptor:
            head = (size - cap_bytes) // BLOCK * BLOCK
            if _libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, head) != 0:
                number = ctypes.get_errno()
                self._unpunchable = number in (errno.EOPNOTSUPP, errno.ENOSYS)
                log.warning("logs cannot be cut on this file system", path=str(path), error=os.strerror(number))


def _first_data(descriptor: int, start: int, size: int) -> int:
    """Where bytes begin that were not cut off."""
    if start >= size:
        return size
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def _index(path: Path) -> Path:
    return path.with_suffix(".times")


def _note_length(path: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if os.fstat(descriptor).st_size < MAX_INDEX_BYTES:
            os.write(descriptor, _ENTRY.pack(time.time(), size))
    finally:
        os.close(descriptor)


def _length_at(path: Path, moment_s: float) -> int:
    """How long the log was then: at most LOOK_S too short, never too long."""
    length = 0
    with contextlib.suppress(FileNotFoundError), open_plainly(path) as descriptor:
        entries = os.pread(descriptor, MAX_INDEX_BYTES, 0)
        for noted_s, size in _ENTRY.iter_unpack(entries[: len(entries) // _ENTRY.size * _ENTRY.size]):
            if noted_s > moment_s:
                break
            length = size
    return length
