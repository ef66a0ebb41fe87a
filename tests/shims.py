"""Shims that are ready at once: one clean process imports torch and forks them, since an import costs seconds."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


class ShimFactory:
    """Starts shims by asking a process that has imported everything and has one thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__)), str(Path(__file__).parent.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self, folder: Path) -> int:
        """Pid of a new shim for this folder; like a shim from the command line but for the time to import."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(str(folder)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def serve() -> None:
    """One request a line: an attempt's folder; the answer is its shim's pid. Children are reaped by the kernel.

    Shims end with this process, so that tests that are killed leave none behind.
    """
    from worker import shim
    from worker.launcher import fork_shim

    shim.import_ahead()
    for request in sys.stdin:
        pid = fork_shim(Path(json.loads(request)), parent=os.getpid())
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    serve()
