"""A network of one's own, so that its loopback can be made slow without slowing anybody else's."""

import ctypes
import os
import shutil
import subprocess

_CLONE_NEWNET = 0x40000000
LIMIT_S = 10
_FREELY = ("10gbit", "8mb")
_BURST = "32kb"


def isolate() -> str:
    """From here on this process and its children have a loopback of their own. Says why not where that cannot be; then
    nothing has changed. Call it before there are threads."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 not found"
    if os.geteuid() != 0:
        return "only root may have a network of its own"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        return f"this kernel gives no network of its own: {os.strerror(ctypes.get_errno())}"
    return _run("ip", "link", "set", "lo", "up", "mtu", "9000") or unshape()


def shape(bytes_per_s: float) -> str:
    """Limit loopback; says why it cannot. Only where `isolate` has succeeded."""
    return _set(f"{int(8 * bytes_per_s)}bit", _BURST)


def unshape() -> str:
    """Never by removing the queue: what waits in it would be lost, and be sent again only after a while."""
    return _set(*_FREELY)


def _set(rate: str, burst: str) -> str:
    return _run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", rate, "burst", burst, "latency", "1s")


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}"
    return f"{' '.join(command)}: {done.stderr.strip()}" if done.returncode else ""
