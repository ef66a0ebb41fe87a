"""A cluster on this machine: a daemon and agents as separate processes. `jct up`, `jct demo` and tests start it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.core.errors import Code, JctError

START_S = 60.0
STOP_S = 10.0
POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class LocalCluster:
    """Everything lies below `state`: daemon/ with database, keys and log, agents/NODE/ with attempts and log.

    Ports 0 let the system choose. Stopping it leaves running jobs alone: the next start finds them again.
    ends_with_us: its programs get SIGTERM when the thread that started them ends, be it by SIGKILL.
    """

    state: Path
    port: int = 0
    agents_port: int = 0
    ends_with_us: bool = False
    daemon: "subprocess.Popen[bytes] | None" = None
    agents: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def daemon_folder(self) -> Path:
        return self.state / "daemon"

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def token(self) -> str | None:
        """The first admin token, as long as nobody has taken it away from the state folder."""
        file = self.daemon_folder / "admin-token"
        return file.read_text().strip() if file.exists() else None

    def start_daemon(self, *options: str) -> None:
        """Returns once it listens. Raises JctError with the daemon's own last words when it does not start."""
        self.daemon_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = ["scheduler.daemon", "--state", str(self.daemon_folder)]
        command += ["--port", str(self.port), "--agents-port", str(self.agents_port)]
        self.daemon = self._start([*command, *options], self.daemon_folder / "jctd.log")
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.daemon.poll() is not None:
                raise JctError(Code.UNREACHABLE, f"jctd did not start: {_last_line(self.daemon_folder / 'jctd.log')}")
            if (facts := self._announced()) is not None:
                self.facts = facts
                self.port = int(self.url.rpartition(":")[2])
                self.agents_port = int(str(facts["agents"]).rpartition(":")[2])
                return
            time.sleep(POLL_S)
        raise JctError(Code.UNREACHABLE, f"jctd did not listen within {START_S:.0f} s; see {self.daemon_folder}")

    def _announced(self) -> dict[str, object] | None:
        try:
            facts = json.loads((self.daemon_folder / "daemon.json").read_text())
        except (OSError, ValueError):
            return None
        assert self.daemon is not None
        return facts if facts.get("pid") == self.daemon.pid else None

    def start_agent(self, node: str, devices: str | None = None, *options: str) -> None:
        """Lets the node's key in and starts its agent; it registers on its own. options: more of the agent's own."""
        from scheduler.transport.keys import allow_agent

        folder = self.state / "agents" / node
        allow_agent(self.daemon_folder, folder, node)
        command = ["agent.main", "--connect", str(self.facts["agents"]), "--state", str(folder), "--node", node]
        command += ["--server-key", str(self.daemon_folder / "daemon.key")]
        if os.geteuid() == 0 and "--accounts" not in options:
            command.append("--run-as-root")  # whose cluster on their own machine this is may do so anyway
        if devices is not None:
            command += ["--devices", devices]
        self.agents[node] = self._start([*command, *options], folder / "agent.log")

    def check(self) -> None:
        """Raises JctError when a process has ended by itself."""
        if self.daemon is not None and self.daemon.poll() is not None:
            raise _ended("jctd", self.daemon, self.daemon_folder / "jctd.log")
        for node, process in self.agents.items():
            if process.poll() is not None:
                raise _ended(f"the agent of node {node}", process, self.state / "agents" / node / "agent.log")

    def stop(self) -> None:
        """Agents first, then the daemon: SIGTERM, and SIGKILL for what does not listen."""
        for process in [*self.agents.values(), self.daemon]:
            if process is not None:
                _stop(process)
        self.agents.clear()
        self.daemon = None

    def _start(self, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
        """In a session of its own: Ctrl-C in a terminal reaches only `jct`, which then stops things in order."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=_ending_with(os.getpid()) if self.ends_with_us else None,
            )


def _ending_with(parent: int) -> Callable[[], None]:
    """For a child, before it becomes another program."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ended(what: str, process: "subprocess.Popen[bytes]", log: Path) -> JctError:
    """A signal leaves no last words: what stands last in the log is then of long ago."""
    code = process.returncode
    how = f"was ended by signal {-code}" if code < 0 else f"has ended: {_last_line(log)}"
    return JctError(Code.UNREACHABLE, f"{what} {how}", hint=f"its log is {log}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"
