"""Linux processes as the shim needs them: identity, descendants, and signals that cannot hit a stranger."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Orphans among the descendants become this process's children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become_account(uid: int, gid: int, groups: Collection[int]) -> None:
    """Give root away for good, for this process and all it starts."""
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 1)  # else its own /proc files would still be root's
    os.umask(0o077)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent's thread that forked this process ends; at once where it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def endings() -> list[signal.Signals]:
    """Signals that ask a command to end: of a terminal that is closed not where it is to go on, as under nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def tell_end_of_parent(number: signal.Signals) -> None:
    """This signal comes when the parent's thread that started this process ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


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
    session: int
    start_ticks: int


def stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))
    return None


def descendants(root: int) -> list[Stat]:
    """Living descendants of a process, zombies excepted."""
    return [process for process in _below(_children(), [root]) if process.state != "Z"]


def strays(shim: int, living: Mapping[int, int], others: Collection[int]) -> list[Stat]:
    """Descendants of the shim that belong to no living member.

    living: pid of each living member. others: the shim's own helpers. A process is a living member's by descent, by
    session, or by JCT_MEMBER in the environment it was started with. Zombies count: other threads of one may still run,
    and the shim collects it at its next look.
    """
    children = _children()
    spared = {*living.values(), *others}
    roots = [
        child
        for child in children.get(shim, [])
        if child.pid not in spared and child.session not in living.values() and _member_of(child.pid) not in living
    ]
    return [*roots, *_below(children, [root.pid for root in roots])]


def _children() -> dict[int, list[Stat]]:
    children: dict[int, list[Stat]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (found := stat(int(entry))) is not None:
            children.setdefault(found.parent, []).append(found)
    return children


def _below(children: Mapping[int, list[Stat]], roots: Iterable[int]) -> list[Stat]:
    below: list[Stat] = []
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), []):
            below.append(child)
            waiting.append(child.pid)
    return below


def _member_of(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"JCT_MEMBER="):
                return int(variable.partition(b"=")[2])
    return None


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


def oom_kills() -> int:
    """How often the kernel has killed for want of memory since this host started, be it the host's memory or a
    cgroup's; 0 where it does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/vmstat").read_bytes().split(b"\noom_kill ")[1].split()[0])
    return 0
