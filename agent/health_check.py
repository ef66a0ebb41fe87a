"""The site's own health check: a program that exits 0 where the node is well, else says on its first line why not."""

import hashlib
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from agent.cgroups import Containment

KEPT_BYTES = 4_096
MAX_REASON = 200
KILL_S = 5.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TZ")


class BadHealthCheck(ValueError):
    """What is named as --health-check cannot be executed."""


class HealthCheck:
    """One program, run without a shell in a session of its own, and killed with its children when it is late."""

    def __init__(self, program: Path, timeout_s: float, node: str, state: Path) -> None:
        """state: the agent's folder, by which what an agent left behind is found again. Raises BadHealthCheck."""
        if not program.is_file() or not os.access(program, os.X_OK):
            raise BadHealthCheck(f"--health-check {program} is no program that can be executed")
        self.program, self.timeout_s = program.absolute(), timeout_s
        nonce = "health-" + hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:16]
        self._processes = Containment(None, nonce, nonce)
        self._environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._environment |= {"JCT_NODE": node, "JCT_NONCE": nonce}
        self.end()

    def ask(self) -> str:
        """Why the node is not well, empty where it is."""
        self.end()
        if self._processes.pids():
            return "an earlier health check hangs and cannot be killed"
        try:
            process = subprocess.Popen(
                [self.program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True, cwd="/", env=self._environment,
            )  # fmt: skip
        except OSError as error:
            return f"the health check cannot be started: {error.strerror}"
        assert process.stdout is not None
        with process.stdout as pipe:
            said = _read(process.pid, pipe.fileno(), self.timeout_s)
        if (code := process.poll()) is None:
            self._kill(process)
            return f"the health check took longer than {self.timeout_s:g} s"
        return "" if code == 0 else first_line(said) or _ended(code)

    def end(self) -> None:
        """Kill what runs."""
        self._processes.kill()

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        """For some seconds: what hangs in the kernel dies later or never."""
        deadline = time.monotonic() + KILL_S
        while self._processes.pids() and time.monotonic() < deadline:
            self.end()
            process.poll()
            time.sleep(0.02)
        process.poll()


def _read(pid: int, pipe: int, timeout_s: float) -> bytes:
    """What it says first, until it ends or is late; what it says beyond is taken and forgotten."""
    os.set_blocking(pipe, False)
    deadline = time.monotonic() + timeout_s
    said, ended = bytearray(), os.pidfd_open(pid)
    waiting = [pipe, ended]
    try:
        while ended in waiting and (left_s := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(waiting, [], [], left_s)
            if pipe in ready and not _take(pipe, said):
                waiting.remove(pipe)
            elif ended in ready:
                waiting.remove(ended)
    finally:
        os.close(ended)
    return bytes(said)


def _take(pipe: int, said: bytearray) -> bool:
    """False at the end."""
    data = os.read(pipe, 65_536)
    said += data[: KEPT_BYTES - len(said)]
    return bool(data)


def first_line(said: bytes) -> str:
    """As text without control characters."""
    text = next((line for line in said.decode(errors="replace").splitlines() if line.strip()), "")
    return "".join(letter for letter in text if letter.isprintable()).strip()[:MAX_REASON]


def _ended(code: int) -> str:
    if code < 0:
        return f"the health check was ended by {signal.Signals(-code).name}"
    return f"the health check exited with code {code} and said nothing"
