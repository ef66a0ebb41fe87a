"""Runs one attempt on this machine without agent or daemon: starts a shim and drives it with Targets."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from policies.ir.plan import ParallelPlan
from scheduler.protocol.codec import Unframer, decode_from_shim, frame
from scheduler.protocol.messages import Phase, Report, Run, ShimHello, Slowdowns, Spawn, Stop, Target
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.spec import AttemptSpec

CONNECT_TIMEOUT_S = 60.0


class Launched:
    """An attempt's members under one shim: the agent's part of the conversation, and no more.

    reports: the newest of each member. hello: the shim's first word on the present connection.
    """

    def __init__(
        self,
        folder: Path,
        spec: AttemptSpec,
        plan: ParallelPlan | None,
        start_shim: Callable[[Path], Any],
        here: tuple[int, ...] | None = None,
    ) -> None:
        """Make the folder, write spec.json and start a shim. folder: named JOB.ATTEMPT. plan: None for a probe.

        here: the members that this shim has, where others have the rest; default: all.
        """
        self.folder, self.spec, self.plan = folder, spec, plan
        self.job, self.attempt = (int(part) for part in folder.name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
        self.shim = start_shim(folder)
        self.generation = 1
        self.size = plan.world_size if plan is not None else 1
        self.members = tuple(range(self.size))
        self._next_member = self.size
        self.reports: dict[int, Report] = {}
        self.targets = {member: self._target(member) for member in here or self.members}
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
                self.pass_store(message)
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
        """Every member that was ever spawned is."""
        gone = [member for member, report in self.reports.items() if report.phase is Phase.GONE]
        return len(gone) == len(self.targets)

    def is_running(self) -> bool:
        """The newest generation trains."""
        return any(r.step is not None and r.generation == self.generation for r in self.reports.values())

    def stop(self, grace_s: float, save: bool = True, why: str = "asked to") -> None:
        """Target every member to stop."""
        for member, target in self.targets.items():
            self._send(member, msgspec.structs.replace(target, want=Stop(grace_s=grace_s, why=why, save=save)))

    def tell(self, *slowdowns: Slowdown) -> None:
        """What an agent knows of devices; they are called as in `_target`."""
        self._socket.sendall(frame(Slowdowns(slowdowns=slowdowns)))

    def save(self) -> None:
        """Ask for a checkpoint now."""
        for member, target in self.targets.items():
            self._send(member, msgspec.structs.replace(target, save_no=target.save_no + 1))

    def change(self, plan: ParallelPlan, members: tuple[int, ...] | None = None) -> None:
        """Propose the next generation to one that runs. members: of each rank; default: the first members stay.

        Raises:
            ValueError: the members do not fit the plan, or one of them has ended.
        """
        members = members or self._members_for(plan.world_size)
        ended = [member for member in members if self._has_ended(member)]
        if len(members) != plan.world_size or ended:
            raise ValueError(f"members {members} cannot be the {plan.world_size} ranks; ended: {ended}")
        self.generation += 1
        self.plan, self.members = plan, members
        self._next_member = max(self._next_member, *(member + 1 for member in members))
        alive = [member for member in self.targets if not self._has_ended(member)]
        for member in sorted({*alive, *members}):
            target = msgspec.structs.replace(self._target(member), generation=self.generation)
            if member in self.targets:
                self._send(member, target)
            else:
                self.targets[member] = target
                self._spawn(member, target)

    def withdraw(self, generation: int, plan: ParallelPlan, members: tuple[int, ...]) -> None:
        """Take a proposal back: Targets name the old generation again, newcomers shall stop. Its number is used up."""
        self.plan, self.members = plan, members
        for member in [member for member in self.targets if not self._has_ended(member)]:
            target = msgspec.structs.replace(self._target(member), generation=generation)
            stop = Stop(grace_s=0, why="its generation was withdrawn")
            self._send(member, target if member in members else msgspec.structs.replace(target, want=stop))

    def _has_ended(self, member: int) -> bool:
        return member in self.reports and self.reports[member].cause is not None

    def _members_for(self, size: int) -> tuple[int, ...]:
        kept = [member for member in self.members if not self._has_ended(member)][:size]
        fresh = range(self._next_member, self._next_member + size - len(kept))
        return (*kept, *fresh)

    @property
    def pilot(self) -> Report:
        """The newest report of whoever drives, or last drove, the newest generation that runs."""
        driven = [report for report in self.reports.values() if report.step is not None]
        if not driven:
            return self.reports[self._pilot()]
        return max(driven, key=lambda report: (report.generation, report.step or 0))

    def _pilot(self) -> int:
        return self.members[self.plan.pilot_rank] if self.plan is not None else 0

    def _target(self, member: int) -> Target:
        return Target(
            job=self.job,
            attempt=self.attempt,
            member=member,
            device=f"cpu-{member}",
            want=Run(),
            spec=self.spec,
            plan=self.plan,
            ranks=self.members,
            pilot=self._pilot(),
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

    def pass_store(self, report: Report) -> None:
        """To all members. Each generation has its own store: only that of the Targets' generation is passed on."""
        for member, target in self.targets.items():
            if report.store_generation == target.generation and report.store not in (None, target.store):
                self._send(member, msgspec.structs.replace(target, store=report.store))


def start_shim(folder: Path, parent: int | None = None) -> subprocess.Popen[bytes]:
    """A shim as an agent starts it: a session of its own, output to shim.log. parent: the process it shall end with."""
    spec = msgspec.json.decode((folder / "spec.json").read_bytes(), type=AttemptSpec)
    with open(folder / "shim.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.shim", *_options(folder, parent)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "JCT_NONCE": spec.nonce},
        )


def fork_shim(folder: Path, parent: int | None = None) -> int:
    """A shim by fork, from a process that has imported everything and has one thread: seconds sooner. Its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        log = os.open(folder / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, place in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, place)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        from worker import shim

        code = shim.main(_options(folder, parent))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _options(folder: Path, parent: int | None) -> list[str]:
    return ["--folder", str(folder), *(["--parent", str(parent)] if parent is not None else [])]
