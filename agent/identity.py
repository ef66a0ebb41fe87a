"""Who this machine, this boot and a process are: identities that no restart confuses."""

import hashlib
import os
import uuid
from pathlib import Path


def boot_id() -> str:
    """Changes with every start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def machine_id(state_dir: Path) -> str:
    """The same for the life of the machine: hashed from /etc/machine-id, else made once and kept in state_dir."""
    try:
        known = Path("/etc/machine-id").read_text().strip()
    except OSError:
        known = ""
    if known:
        return hashlib.sha256(f"jctd:{known}".encode()).hexdigest()[:32]
    kept = state_dir / "machine-id"
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex)
    return kept.read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None when there is no such process. With the pid, an identity."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def open_process(pid: int, ticks: int) -> int | None:
    """A pidfd of exactly that process, or None when it is gone: signals through it never hit a stranger."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if start_ticks(pid) == ticks:
        return descriptor
    os.close(descriptor)
    return None
