"""A small pipeline of processes that computes for real, to be disturbed: matrices, messages over loopback, 1F1B.

`python -m agent.forest.stage --cores 0,1 --batch 32` runs one process a core. On standard output it tells the pids,
then of every step and stage a line: `STAGE END_S STEP_S BUSY_S CPU_S`, where BUSY_S is the time in which the stage
computed, sent, or had something to do, were it only to receive, while others had its core, and CPU_S the part of it on
a core. It ends with its standard input.
"""

import argparse
import contextlib
import ctypes
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

WIDTH, LAYERS, MICROBATCHES = 384, 4, 4
SEND_BUFFER_BYTES = 8192
"""Small, so that a send lasts as long as its message travels."""
SEGMENT_BYTES = 1448
"""As on Ethernet. Loopback's 64 KB would not fill within the send buffer, and each ack would come 40 ms late."""
_PR_SET_PDEATHSIG = 1
_HEADER = struct.Struct("!I")


class Queued:
    """How long a thread of this process was ready to run while others had its core; 0 where the kernel does not count
    it."""

    def __init__(self, thread: int) -> None:
        """thread: its native id."""
        try:
            self._file: int | None = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None

    def seconds(self) -> float:
        """Up to when it last came to run. 0 when it has ended."""
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9 if self._file is not None else 0.0
        except OSError:
            return 0.0


class Line:
    """Both directions between two neighbours. A thread receives, so that two sends never block each other."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._come: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        assert receiver.native_id is not None
        self._queued = Queued(receiver.native_id)

    def send(self, data: bytes) -> None:
        self._sock.sendall(_HEADER.pack(len(data)) + data)

    def take(self) -> tuple[bytes, float]:
        """Waits. With it, for how long of this others had the core that the receiver wanted. Raises EOFError when the
        neighbour is gone."""
        began_s, queued_s = time.monotonic(), self._queued.seconds()
        data = self._come.get()
        if data is None:
            raise EOFError
        late_s = self._queued.seconds() - queued_s  # of it, what was before may have been this process's own computing
        return data, max(0.0, min(late_s, time.monotonic() - began_s))

    def _receive(self) -> None:
        try:
            with self._sock.makefile("rb") as stream:
                while header := stream.read(_HEADER.size):
                    self._come.put(stream.read(_HEADER.unpack(header)[0]))
        except OSError:
            pass
        self._come.put(None)


class Stage:
    """One stage's work: a forward and a backward of LAYERS square matrices on each micro-batch."""

    def __init__(self, number: int, stages: int, batch: int, before: Line | None, after: Line | None) -> None:
        self._number, self._ahead = number, stages - 1 - number
        self._before, self._after = before, after
        random = np.random.default_rng(number)
        self._weights = [random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5 for _ in range(LAYERS)]
        self._first = random.standard_normal((batch, WIDTH), dtype=np.float32)
        self._shape = batch, WIDTH
        self._kept: list[list[np.ndarray]] = []
        self._queued, self._counted_s = Queued(threading.get_native_id()), 0.0
        self.busy_s = self.cpu_s = 0.0

    def step(self) -> None:
        """1F1B: as many forwards ahead as there are stages behind. What it waits for its core after a message has come
        is known only now, and is no less its work's time than what it waits in the middle of a product."""
        before_s, self._counted_s = self._queued.seconds(), 0.0
        self._run()
        self.busy_s += max(0.0, self._queued.seconds() - before_s - self._counted_s)

    def _run(self) -> None:
        for turn in range(MICROBATCHES + self._ahead):
            if turn < MICROBATCHES:
                self._forward()
            if turn >= self._ahead:
                self._backward()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began_s, ran_s, queued_s = time.monotonic(), time.thread_time(), self._queued.seconds()
        yield
        self.busy_s += time.monotonic() - began_s
        self.cpu_s += time.thread_time() - ran_s
        self._counted_s += self._queued.seconds() - queued_s

    def _forward(self) -> None:
        x = self._first if self._before is None else self._taken(self._before)
        inputs = []
        with self._timed():
            for weight in self._weights:
                inputs.append(x)
                x = np.maximum(x @ weight, 0.0)
            if self._after is not None:
                self._after.send(x.tobytes())
        self._kept.append(inputs)

    def _backward(self) -> None:
        gradient = self._first if self._after is None else self._taken(self._after)
        with self._timed():
            for weight, x in zip(reversed(self._weights), reversed(self._kept.pop(0)), strict=True):
                weight -= np.float32(1e-9) * np.tanh(x.T @ gradient)
                gradient = gradient @ weight.T
            if self._before is not None:
                self._before.send(gradient.tobytes())

    def _taken(self, line: Line) -> np.ndarray:
        data, late_s = line.take()
        self.busy_s += late_s
        return np.frombuffer(data, dtype=np.float32).reshape(self._shape)


def run_stage(
    number: int, stages: int, core: int, batch: int, rest: float, before: Line | None, after: Line | None
) -> None:
    """Steps until a neighbour or the reader has gone. rest: after a step the first stage sleeps so many times as long
    as it was busy, as one that waits for its data."""
    os.sched_setaffinity(0, {core})
    stage = Stage(number, stages, batch, before, after)
    ended_s = time.monotonic()
    while True:
        stage.busy_s = stage.cpu_s = 0.0
        stage.step()
        if number == 0 and rest:
            time.sleep(rest * stage.busy_s)
        began_s, ended_s = ended_s, time.monotonic()
        numbers = ended_s, ended_s - began_s, stage.busy_s, stage.cpu_s
        os.write(sys.stdout.fileno(), f"{number} {' '.join(f'{one:.6f}' for one in numbers)}\n".encode())


def connected(count: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Pairs of ends over loopback."""
    for _ in range(count):
        with socket.socket() as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            one = socket.socket()
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            one.connect(server.getsockname())
            yield one, server.accept()[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agent.forest.stage")
    parser.add_argument("--cores", required=True, help="of each stage, with commas between")
    parser.add_argument("--batch", type=int, required=True, help="rows of a micro-batch")
    parser.add_argument("--rest", type=float, default=0.0, help="between steps, as a multiple of a step's work")
    options = parser.parse_args()
    cores = [int(core) for core in options.cores.split(",")]
    pids = start(cores, options.batch, options.rest)
    os.write(sys.stdout.fileno(), (" ".join(map(str, pids)) + "\n").encode())
    sys.stdin.buffer.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start(cores: Sequence[int], batch: int, rest: float) -> list[int]:
    """One child a stage; each ends with this process."""
    links = list(connected(len(cores) - 1))
    pids = []
    for number, core in enumerate(cores):
        if (pid := os.fork()) == 0:
            _end_with_parent()
            before = Line(links[number - 1][1]) if number else None
            after = Line(links[number][0]) if number + 1 < len(cores) else None
            try:
                run_stage(number, len(cores), core, batch, rest, before, after)
            except (EOFError, OSError):
                os._exit(0)
        pids.append(pid)
    return pids


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


if __name__ == "__main__":
    main()
