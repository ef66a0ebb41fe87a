"""One attempt's processes on one node: the loop behind the contract in `worker.shim`."""

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import sys
from pathlib import Path

import msgspec

from scheduler.protocol.messages import PROTOCOL_VERSION, Phase, ShimHello, Slowdowns, Spawn, Stop, Target
from scheduler.protocol.spec import AttemptSpec
from worker import processes, spawn
from worker.agent_line import AgentLine
from worker.checkpoint.directory import Directory
from worker.command import Placeholder, command_guard, leader_of
from worker.guard import Guard
from worker.ports import lease_port

TICK_S = 1.0
SWEEP_S = 0.02
"""Between two looks for descendants that have to go."""


class Zygote:
    """One attempt's processes on this node. One thread, no user code, no CUDA."""

    def __init__(self, folder: Path, host: str, linger_s: float) -> None:
        """Takes the folder's lock and makes this process known in it; nothing is forked before.

        Raises:
            BlockingIOError: another shim has the folder. OSError, ValueError: the folder is not an attempt's.
        """
        self.folder, self._host, self._linger_s = folder, host, linger_s
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._files = Directory(folder)
        self._job, self._attempt = attempt_of(folder)
        self._spec = msgspec.json.decode(self._files.read("spec.json"), type=AttemptSpec)
        processes.become_subreaper()
        self._guards: dict[int, Guard] = {}
        self._stores: dict[int, tuple[int, str]] = {}
        self._idle_since_s = processes.boot_time_s()
        self._shutting_down = False
        self._selector = selectors.DefaultSelector()
        self._wake = self._catch_signals()
        self._make_known()
        hello = ShimHello(job=self._job, attempt=self._attempt, nonce=self._spec.nonce, pid=os.getpid())
        self._agent = AgentLine(folder, self._lock, self._selector, hello)

    @property
    def is_command(self) -> bool:
        """Its members need nothing imported."""
        return self._spec.kind == "command"

    def run(self) -> None:
        """Serve until the last member is gone and its last word was read or nobody came for it."""
        while not self._is_over():
            self._wait()
            now_s = processes.boot_time_s()
            self._reap()
            for guard in self._guards.values():
                if guard.alive:
                    self._read(guard)
                    guard.tick(now_s)
            self._sweep()
            self._agent.tell({member: guard.report for member, guard in self._guards.items()})
        self._selector.close()
        self._agent.close()

    # --- set-up ------------------------------------------------------------------------------------------------

    def _catch_signals(self) -> socket.socket:
        """SIGCHLD and SIGTERM wake the loop; SIGHUP and SIGINT are for others."""
        wake, write = socket.socketpair()
        wake.setblocking(False)
        write.setblocking(False)
        self._wake_write = write
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._shut_down())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(wake, selectors.EVENT_READ)
        return wake

    def _make_known(self) -> None:
        own = processes.stat(os.getpid())
        assert own is not None
        identity = {
            "boot": processes.boot_id(),
            "pid": own.pid,
            "start_ticks": own.start_ticks,
            "nonce": self._spec.nonce,
            "protocol": PROTOCOL_VERSION,
            "job": self._job,
            "attempt": self._attempt,
        }
        self._files.write("shim.json", json.dumps(identity).encode(), str(own.pid))

    # --- the loop ----------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        channels = [guard.line for guard in self._guards.values() if guard.alive and not guard.silent]
        if self._agent.channel is not None:
            channels.append(self._agent.channel)
        for channel in channels:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_write else 0)
            self._selector.modify(channel.end, events)
        for key, _ in self._selector.select(self._timeout_s()):
            if key.fileobj is self._wake:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            elif key.fileobj is self._agent.listener:
                self._agent.welcome(self._guards)
            elif self._agent.channel is not None and key.fileobj is self._agent.channel.end:
                self._hear()
        for channel in channels:
            channel.flush()

    def _read(self, guard: Guard) -> None:
        """What has hung up would wake the loop for ever."""
        was_silent = guard.silent
        guard.read()
        if guard.silent and not was_silent:
            self._selector.unregister(guard.line.end)

    def _timeout_s(self) -> float:
        if any(not guard.alive and guard.report.phase is not Phase.GONE for guard in self._guards.values()):
            return SWEEP_S
        now_s = processes.boot_time_s()
        deadlines = [at for guard in self._guards.values() if (at := guard.next_deadline_s()) is not None]
        return max(0.0, min([TICK_S, *(at - now_s for at in deadlines)]))

    def _hear(self) -> None:
        for message, log in self._agent.messages():
            if isinstance(message, Spawn):
                self._spawn(message, log)
            elif isinstance(message, Slowdowns):
                for guard in self._guards.values():
                    guard.tell(message)
            else:
                self._take(message)

    # --- members -----------------------------------------------------------------------------------------------

    def _spawn(self, message: Spawn, log: int) -> None:
        target = message.target
        try:
            if target.member in self._guards:
                self._take(target)
            elif isinstance(target.want, Stop):
                print(f"shim: member {target.member} shall stop before it has started", file=sys.stderr, flush=True)
            else:
                self._start(target, log, message.secrets)
        finally:
            os.close(log)

    def _start(self, target: Target, log: int, secrets: dict[str, str]) -> None:
        try:
            pid, line = spawn.start_member(target, self.folder, log, secrets)
            is_command = target.spec.kind == "command"
            guard = command_guard(target, pid, line, self.folder) if is_command else Guard(target, pid, line)
            self._guards[target.member] = guard
            self._selector.register(line, selectors.EVENT_READ)
            self._end_with_leader(guard)
            self._provide_store(target)
        except OSError as error:
            why = f"no process could be started: {error.strerror}; see the limits on processes and memory"
            self._guards.setdefault(target.member, Guard.stillborn(target, why))

    def _take(self, target: Target) -> None:
        guard = self._guards.get(target.member)
        if guard is not None:
            guard.take(target, processes.boot_time_s())
            self._end_with_leader(guard)
            self._provide_store(target)

    def _provide_store(self, target: Target) -> None:
        """Each generation's store is started beside its pilot's member; probes have none."""
        guard = self._guards[target.member]
        if target.member != target.pilot or not guard.alive:
            return
        if target.spec.kind == "command":
            self._lease_port(guard)
        if target.plan is None:
            return
        if target.generation not in self._stores:
            self._stores[target.generation] = spawn.start_store(self._host)
        guard.set_store(target.generation, self._stores[target.generation][1])

    def _lease_port(self, guard: Guard) -> None:
        """Where the ranks of a command meet: one port for the attempt's life."""
        if guard.report.store is None:
            port = lease_port(self.folder.parent.parent / "ports", self._host, self._spec.nonce)
            guard.set_store(1, f"{self._host}:{port}")

    def _shut_down(self) -> None:
        """SIGTERM: the machine goes down. Every member stops as if the agent had asked."""
        now_s = processes.boot_time_s()
        stop = Stop(grace_s=self._spec.job.grace_s, why="the node shuts down")
        for guard in self._guards.values():
            guard.take(msgspec.structs.replace(guard.target, want=stop), now_s)
        self._shutting_down = True

    def _reap(self) -> None:
        by_pid = {guard.pid: guard for guard in self._guards.values() if guard.alive}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in by_pid:
                    if not by_pid[pid].silent:
                        self._selector.unregister(by_pid[pid].line.end)
                    by_pid[pid].ended(status)
                    for guard in self._guards.values():
                        self._end_with_leader(guard)
                self._stores = {number: store for number, store in self._stores.items() if store[0] != pid}

    def _end_with_leader(self, guard: Guard) -> None:
        """A placeholder ends once its program has; or when it is told to, and there is none."""
        if not isinstance(guard, Placeholder) or not guard.alive:
            return
        leader = self._guards.get(leader_of(guard.target))
        if leader is None and isinstance(guard.target.want, Stop):
            guard.follow(None)
        elif leader is not None and not leader.alive:
            guard.follow(leader.report)

    def _sweep(self) -> None:
        """When a member has ended, nothing of it may stay. Then its end is made durable and told."""
        ended = {m: g for m, g in self._guards.items() if not g.alive and g.report.phase is not Phase.GONE}
        if not ended:
            return
        living = {member: guard.pid for member, guard in self._guards.items() if guard.alive}
        strays = processes.strays(os.getpid(), living, {pid for pid, _ in self._stores.values()})
        for process in strays:
            processes.kill(process)
        if strays:
            return
        for member, guard in ended.items():
            guard.gone()
            with contextlib.suppress(OSError):  # a full disk, where shim.log lies too, must not cost the living
                self._files.write(f"exit-{member}.json", msgspec.json.encode(guard.report), str(os.getpid()))
        if not living:
            for pid, _ in self._stores.values():
                os.kill(pid, signal.SIGKILL)
            self._idle_since_s = processes.boot_time_s()
            self._agent.hung_up = False

    def _all_gone(self) -> bool:
        return all(guard.report.phase is Phase.GONE for guard in self._guards.values())

    def _is_over(self) -> bool:
        """Everything is told: the agent has hung up after the last word, or nobody listens for long."""
        if not self._all_gone():
            return False
        waited_s = processes.boot_time_s() - self._idle_since_s
        if not self._guards:
            return self._shutting_down or waited_s >= self._spec.start_timeout_s
        return (self._agent.hung_up and self._agent.channel is None) or waited_s >= self._linger_s


def attempt_of(folder: Path) -> tuple[int, int]:
    """Job and attempt from the folder's name. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\.(\d+)", folder.name)
    if match is None:
        raise ValueError(f"{folder} is not named JOB.ATTEMPT")
    return int(match[1]), int(match[2])
