"""A cgroup v2 for each attempt where this node allows one; else strays are found by the nonce in their environment."""

import contextlib
import os
import signal
import time
from pathlib import Path

SWEEP_S = 0.02
_FOLDER = b"JCT_ATTEMPT_DIR="


def find_parent() -> Path | None:
    """A cgroup2 folder in which this process may make groups, from mountinfo; None where there is none."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if not rest.startswith("cgroup2 "):
            continue
        mount = Path(fields.split()[4])
        own = next((row[3:] for row in _own_cgroups() if row.startswith("0::")), "/")
        parent = mount / own.lstrip("/") / "jctd"
        with contextlib.suppress(OSError):
            parent.mkdir(exist_ok=True)
            if os.access(parent / "cgroup.procs", os.W_OK):
                return parent
    return None


def _own_cgroups() -> list[str]:
    return Path("/proc/self/cgroup").read_text().splitlines()


class Containment:
    """Holds all processes of one attempt on this node, whatever they fork and however they hide."""

    def __init__(self, parent: Path | None, name: str, nonce: str) -> None:
        self._group = parent / name if parent is not None else None
        self._nonce = f"JCT_NONCE={nonce}".encode()
        if self._group is not None:
            try:
                self._group.mkdir(exist_ok=True)
            except OSError:
                self._group = None

    def add(self, pid: int) -> None:
        if self._group is not None:
            with contextlib.suppress(OSError):
                (self._group / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """All that live. Zombies do not count: they hold nothing."""
        found = self._by_nonce()
        if self._group is not None:
            with contextlib.suppress(OSError):
                listed = (self._group / "cgroup.procs").read_text().split()
                found += [int(pid) for pid in listed if int(pid) not in found and not _is_zombie(int(pid))]
        return found

    def kill(self) -> None:
        """SIGKILL to every process inside; call again until `pids` is empty."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                (self._group / "cgroup.kill").write_text("1")
        for pid in self._by_nonce():
            _kill_checked(pid, self._nonce)

    def remove(self) -> None:
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()

    def _by_nonce(self) -> list[int]:
        return [pid for pid in _all_pids() if self._nonce in _environment(pid)]


def end_unrecorded(attempts: Path) -> list[int]:
    """End every process of an attempt whose folder, or its spec, is gone; returns their ids once they are dead.

    Such a process can be neither adopted nor reported, and its device is about to be given to another.
    """
    ended: set[int] = set()
    while found := [pid for pid in _all_pids() if _is_unrecorded(pid, attempts)]:
        for pid in found:
            for mark in [entry for entry in _environment(pid) if entry.startswith(_FOLDER)]:
                _kill_checked(pid, mark)
        ended.update(found)
        time.sleep(SWEEP_S)
    return sorted(ended)


def _is_unrecorded(pid: int, attempts: Path) -> bool:
    folders = [Path(os.fsdecode(entry[len(_FOLDER) :])) for entry in _environment(pid) if entry.startswith(_FOLDER)]
    return any(folder.parent == attempts and not (folder / "spec.json").exists() for folder in folders)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """What a process was started with, as NAME=VALUE; empty for zombies and for what is not ours to read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat[stat.rindex(b")") + 2 :][:1] in (b"Z", b"X")


def _kill_checked(pid: int, mark: bytes) -> None:
    """Through a pidfd, checked again after opening it, so that a reused pid is never hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if mark in _environment(pid):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
