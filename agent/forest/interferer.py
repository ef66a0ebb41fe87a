"""One stranger that uses what a pipeline needs: `python -m agent.forest.interferer KIND STRENGTH [--core N]`.

STRENGTH from 0 to 1 is the part of each tenth of a second in which it works. It ends with its standard input, and with
its parent.

compute: a core. memory_bandwidth: copies of arrays larger than caches. memory_capacity: pages touched and given back.
loopback: messages to itself over 127.0.0.1.
"""

import argparse
import ctypes
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

PERIOD_S = 0.1
COPY_BYTES = 32 << 20
TOUCH_BYTES = 16 << 20
PAGE_BYTES = 4096
MESSAGE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


def compute() -> Callable[[], None]:
    def work() -> None:
        total = 0
        for number in range(5000):
            total += number * number

    return work


def memory_bandwidth() -> Callable[[], None]:
    import numpy as np

    source, copy = np.ones(COPY_BYTES, dtype=np.uint8), np.zeros(COPY_BYTES, dtype=np.uint8)

    def work() -> None:
        np.copyto(copy, source)

    return work


def memory_capacity() -> Callable[[], None]:
    def work() -> None:
        with mmap.mmap(-1, TOUCH_BYTES) as pages:
            for at in range(0, TOUCH_BYTES, PAGE_BYTES):
                pages[at] = 1

    return work


def loopback() -> Callable[[], None]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver = server.accept()[0]
    message, taken = b"x" * MESSAGE_BYTES, bytearray(MESSAGE_BYTES)

    def work() -> None:
        sender.sendall(message)
        got = 0
        while got < MESSAGE_BYTES:
            got += receiver.recv_into(taken)

    return work


KINDS: dict[str, Callable[[], Callable[[], None]]] = {
    "compute": compute, "memory_bandwidth": memory_bandwidth, "memory_capacity": memory_capacity, "loopback": loopback,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agent.forest.interferer")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("strength", type=float)
    parser.add_argument("--core", type=int, help="that it is pinned to")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    work = KINDS[options.kind]()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        until = time.monotonic() + PERIOD_S
        while time.monotonic() < until - PERIOD_S * (1 - options.strength):
            work()
        time.sleep(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    main()
