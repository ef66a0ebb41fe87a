"""Linux processes as the shim needs them: identity, descendants, and signals that cannot hit a stranger."""

import contextlib
import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Orphans among the descendants become this process's children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent's thread that forked this process ends; at once where it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def rename(name: str) -> None:
    """What ps and top show of this process; the kernel keeps 15 characters."""
    Path("/proc/self/comm").write_text(name[:15])


def boot_time_s() -> float:
    """Seconds since boot, suspend included: a grace does not stop while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says. state: R, S, D, T, Z, ... start_ticks: with the pid, an identity until reboot."""

    pid: int
    state: str
    parent: int
    start_ticks: int


def stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return Stat(pid, fields[0], int(fields[1]), int(fields[19]))
    return None


def descendants(root: int) -> list[Stat]:
    """Living descendants of a process, zombies excepted."""
    children: dict[int, list[Stat]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (found := stat(int(entry))) is not None:
            children.setdefault(found.parent, []).append(found)
    below: list[Stat] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            below.append(child)
            waiting.append(child.pid)
    return [child for child in below if child.state != "Z"]


def kill(process: Stat) -> None:
    """SIGKILL to exactly this process: through a pidfd, after its start time was checked."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            now = stat(process.pid)
            if now is not None and now.start_ticks == process.start_ticks:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
