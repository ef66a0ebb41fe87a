"""Whose a process is that uses a device: one of our jobs', another's, or unknown where that cannot be seen."""

import os
import re
from pathlib import Path

from scheduler.protocol.telemetry import Process

HOST_PIDS = "pid:[4026531836]"
"""The inode of the first pid namespace of a kernel: PROC_PID_INIT_INO of its proc_ns.h."""

_FOLDER = "JCT_ATTEMPT_DIR="
_GROUP = re.compile(r"/jctd/(\d+)\.\d+-[0-9a-f]+")
_MAX_NAME = 40


class Owners:
    """Looks each process up in /proc when it is asked. Processes end at any moment, and then are unknown.

    attempts: the folder of this agent's attempts. In a pid namespace other than the host's, NVML may tell numbers that
    mean other processes here: there only what bears our mark is told, and everything else is unknown.
    """

    def __init__(self, attempts: Path | None, proc: Path = Path("/proc")) -> None:
        self._attempts, self._proc = attempts, proc
        self._known = {attempts, attempts.resolve()} if attempts is not None else set()
        try:
            self._sees_all = os.readlink(proc / "self/ns/pid") == HOST_PIDS
        except OSError:
            self._sees_all = False

    def __call__(self, pid: int, memory_bytes: int | None) -> Process:
        job, seen = self._job(pid), self._sees_all and pid > 0 and (self._proc / str(pid)).exists()
        whose = "job" if job is not None else "other" if seen else "unknown"
        name = self._read(pid, "comm").strip()[:_MAX_NAME] if whose != "unknown" else ""
        return Process(pid=pid, whose=whose, job=job, name=name, memory_bytes=memory_bytes)

    def _job(self, pid: int) -> int | None:
        """By the folder in its environment, or by its cgroup where that is another user's to read."""
        for entry in self._read(pid, "environ").split("\0"):
            if entry.startswith(_FOLDER):
                folder = Path(entry[len(_FOLDER) :])
                number = folder.name.partition(".")[0]
                return int(number) if folder.parent in self._known and number.isdigit() else None
        group = _GROUP.search(self._read(pid, "cgroup"))
        return int(group[1]) if group is not None and self._is_ours(group[0]) else None

    def _is_ours(self, group: str) -> bool:
        """Two agents of one machine share the cgroup's parent: only the attempts that lie here are ours."""
        attempt = group.rpartition("/")[2].partition("-")[0]
        return self._attempts is not None and (self._attempts / attempt).exists()

    def _read(self, pid: int, file: str) -> str:
        try:
            return (self._proc / str(pid) / file).read_bytes().decode(errors="replace")
        except OSError:
            return ""
