"""A port for a gang's rendezvous, leased for the shim's life: no other attempt on this node is given the same one."""

import contextlib
import encodings.idna  # noqa: F401  getaddrinfo loads it late, when its folder may be closed to the account
import errno
import fcntl
import os
import random
import socket
from pathlib import Path

FIRST, LAST = 20_000, 29_999
"""Below the ports that Linux gives to outgoing connections, so that none of them is in the way by chance."""


def lease_port(folder: Path, host: str, seed: str) -> int:
    """A port of `host` that could be bound just now. folder: of the node's locks; the lock ends with this process.

    Raises:
        OSError: none is free.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    ports = list(range(FIRST, LAST + 1))
    random.Random(seed).shuffle(ports)
    for port in ports:
        try:
            lock = os.open(folder / f"{port}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError:  # another account's, once
            continue
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_free(host, port):
                return port  # the descriptor stays open, and with it the lock
        os.close(lock)
    raise OSError(errno.EADDRINUSE, f"no port from {FIRST} to {LAST} is free on {host}")


def _is_free(host: str, port: int) -> bool:
    """Without SO_REUSEADDR: a port whose old connections linger is not free."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((host, port))
        except OSError:
            return False
    return True
