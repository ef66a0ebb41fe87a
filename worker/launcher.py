"""Runs one attempt on this machine without agent or daemon: starts a shim and drives it with Targets."""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from policies.ir.plan import ParallelPlan
from scheduler.protocol.codec import Unframer, decode_from_shim, frame
from scheduler.protocol.messages import Phase, Report, Run, ShimHello, Spawn, Stop, Target
from scheduler.protocol.spec import AttemptSpec

CONNECT_TIMEOUT_S = 60.0


class Launched:
    """An attempt's members under one shim: the agent's part of the conversation, and no more.

    reports: the newest of each member. hello: the shim's first word on the present connection.
    """

    def __init__(
        self, folder: Path, spec: AttemptSpec, plan: ParallelPlan | None, start_shim: Callable[[Path], object]
    ):
        """Make the folder, write spec.json and start a shim. folder: named JOB.ATTEMPT. plan: None for a probe."""
        self.folder, self.spec, self.plan = folder, spec, plan
        self.job, self.attempt = (int(part) for part in folder.name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
        self.shim = start_shim(folder)
        self.size = plan.world_size if plan is not None else 1
        self.reports: dict[int, Report] = {}
        self.targets = {member: self._target(member) for member in range(self.size)}
        self.connect()
        for member, target in self.targets.items():
            self._spawn(member, target)

    def connect(self) -> None:
        """Connect, or connect again, as an agent that was restarted would. Waits while the shim imports torch."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            directory = None
            try:
                directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
                self._socket.connect(f"/proc/self/fd/{directory}/shim.sock")
                break
            except (FileNotFoundError, ConnectionRefusedError):
                self._socket.close()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no shim answers in {self.folder}; see its output") from None
                time.sleep(0.01)
            finally:
                if directory is not None:
                    os.close(directory)
        self._unframer = Unframer()
        self.hello: ShimHello | None = None
        while self.hello is None:
            self.poll(CONNECT_TIMEOUT_S)

    def hang_up(self) -> None:
        self._socket.close()

    def poll(self, timeout_s: float) -> bool:
        """Take in what the shim says within timeout_s. Passes the store on to all members. False: it hung up."""
        ready, _, _ = select.select([self._socket], [], [], timeout_s)
        if not ready:
            return True
        data = self._socket.recv(1 << 16)
        for body in self._unframer.feed(data):
            message = decode_from_shim(body)
            if isinstance(message, ShimHello):
                self.hello = message
            else:
                self.reports[message.member] = message
                self._pass_store(message)
        return bool(data)

    def wait(self, until: Callable[["Launched"], bool] | None = None, timeout_s: float = 120.0) -> dict[int, Report]:
        """Poll until the condition holds (default: every member is gone), and return the reports.

        Raises:
            TimeoutError: with the reports so far.
        """
        until = until or Launched.is_gone
        deadline = time.monotonic() + timeout_s
        while not until(self):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"after {timeout_s} s: {self.reports}")
            if not self.poll(left_s) and not until(self):
                raise ConnectionError(f"the shim hung up: {self.reports}")
        return self.reports

    def is_gone(self) -> bool:
        return len(self.reports) == self.size and all(report.phase is Phase.GONE for report in self.reports.values())

    def stop(self, grace_s: float, save: bool = True, why: str = "asked to") -> None:
        """Target every member to stop."""
        for member, target in self.targets.items():
            self._send(member, msgspec.structs.replace(target, want=Stop(grace_s=grace_s, why=why, save=save)))

    def save(self) -> None:
        """Ask for a checkpoint now."""
        for member, target in self.targets.items():
            self._send(member, msgspec.structs.replace(target, save_no=target.save_no + 1))

    @property
    def pilot(self) -> Report:
        """The pilot's newest report."""
        return self.reports[self.plan.pilot_rank if self.plan is not None else 0]

    def _target(self, member: int) -> Target:
        return Target(
            job=self.job,
            attempt=self.attempt,
            member=member,
            device=f"cpu-{member}",
            want=Run(),
            spec=self.spec,
            plan=self.plan,
            ranks=tuple(range(self.size)),
            pilot=self.plan.pilot_rank if self.plan is not None else 0,
        )

    def _spawn(self, member: int, target: Target) -> None:
        log = os.open(self.folder / f"member-{member}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            data = frame(Spawn(target=target))
            sent = socket.send_fds(self._socket, [data], [log])
            self._socket.sendall(data[sent:])
        finally:
            os.close(log)

    def _send(self, member: int, target: Target) -> None:
        self.targets[member] = target
        self._socket.sendall(frame(target))

    def _pass_store(self, report: Report) -> None:
        if report.store is None or self.targets[report.member].store == report.store:
            return
        for member, target in self.targets.items():
            self._send(member, msgspec.structs.replace(target, store=report.store))


def start_shim(folder: Path) -> subprocess.Popen[bytes]:
    """A shim as an agent starts it: a session of its own, output to shim.log."""
    spec = msgspec.json.decode((folder / "spec.json").read_bytes(), type=AttemptSpec)
    with open(folder / "shim.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.shim", "--folder", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "JCT_NONCE": spec.nonce},
        )
