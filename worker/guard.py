"""One member as the shim sees it: its process, its line, its Report, and how its grace runs out."""

import contextlib
import os
import signal
import socket

import msgspec

from scheduler.protocol.codec import BadMessage, decode_report
from scheduler.protocol.messages import Cause, Phase, Report, Slowdowns, Stop, Target
from worker import processes
from worker.channel import Channel

STOPPED_LIMIT_S = 10.0
DEAF_LIMIT_S = 2.0
OOM_LOOK_S = 2.0
"""A process that the kernel kills for want of memory may need a while to die: what counts is between the last look and
the one before it, and now."""
OURS = frozenset({"job", "attempt", "member", "seq", "store", "store_generation", "exit_code", "signal", "pid"})
"""Fields of a Report that the shim sets; the member sets the others."""


class Guard:
    """Guards one member. `report` is the value to send up; its seq grows with every change. `silent`: its line is
    closed, as it may be, and nothing more is to be heard or said there."""

    def __init__(self, target: Target, pid: int, line: socket.socket) -> None:
        self.target, self.pid = target, pid
        self.line = Channel(line)
        self.alive = True
        self.silent = False
        self.report = Report(
            job=target.job,
            attempt=target.attempt,
            member=target.member,
            seq=1,
            phase=Phase.SPAWNING,
            generation=target.generation,
            pid=pid or None,
        )
        self._kill_at_s: float | None = None
        self._killed = ""
        self._stopped_since_s: float | None = None
        self._deaf_since_s: float | None = None
        self._signalled = False
        self._oom_kills = (processes.oom_kills(),) * 2
        self._oom_looked_s = 0.0
        self._signal_no = target.signal_no
        self.line.offer("target", target)

    @classmethod
    def stillborn(cls, target: Target, why: str) -> "Guard":
        """A member whose process could not be made."""
        line, other = socket.socketpair()
        guard = cls(target, 0, line)
        other.close()
        guard.alive = False
        guard.line.close()
        guard._change(phase=Phase.EXITED, cause=Cause.START_FAILED, message=why)
        return guard

    def take(self, target: Target, now_s: float) -> None:
        """The latest Target: pass it on, and run the grace of a stop."""
        if not isinstance(target.want, Stop) and isinstance(self.target.want, Stop):
            target = msgspec.structs.replace(target, want=self.target.want)  # a stop is never taken back
        self.target = target
        if not self.alive:
            return
        self.line.offer("target", target)
        if target.signal_no > self._signal_no:
            self._signal_no = target.signal_no
            self._send(signal.Signals[target.signal])
        if isinstance(target.want, Stop):
            self._stop(target.want, now_s)

    def tell(self, slowdowns: Slowdowns) -> None:
        """Only a training member reads its line for as long as it lives."""
        if self.alive and not self.silent and self.target.spec.kind == "train":
            self.line.offer("slowdowns", slowdowns)

    def set_store(self, generation: int, address: str) -> None:
        if self.report.store != address:
            self._change(store=address, store_generation=generation)

    def read(self) -> None:
        """Take in the member's Reports; exit code, signal and store are the shim's own words."""
        if self.silent:
            return
        try:
            bodies = self.line.receive()
            latest = decode_report(bodies[-1]) if bodies else None
        except BadMessage:
            return
        if bodies is None:
            self.hung_up()
        if latest is not None:
            self._change(**{field: getattr(latest, field) for field in Report.__struct_fields__ if field not in OURS})

    def hung_up(self) -> None:
        """The member has closed its line, which only its end should do."""
        if self._deaf_since_s is None:
            self._deaf_since_s = processes.boot_time_s()

    def tick(self, now_s: float) -> None:
        """Enforce what time enforces: the end of a grace, and a process that stays stopped."""
        if not self.alive:
            return
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._kill(f"killed when its grace was over: {self._why()}")
        if self._deaf_since_s is not None and now_s - self._deaf_since_s >= DEAF_LIMIT_S and not self._killed:
            if self.report.cause is None:  # what it told beside the training is no reason of its end
                self._change(cause=Cause.USER_EXCEPTION, message="")
            self._kill("its code closed the line to its shim, so that nothing could be told to it any more")
        if now_s - self._oom_looked_s >= OOM_LOOK_S:
            self._oom_kills, self._oom_looked_s = (self._oom_kills[1], processes.oom_kills()), now_s
        found = processes.stat(self.pid)
        if found is None or found.state not in ("T", "t"):
            self._stopped_since_s = None
        elif self._stopped_since_s is None:
            self._stopped_since_s = now_s
        elif now_s - self._stopped_since_s >= STOPPED_LIMIT_S and not self._killed:
            self._change(cause=Cause.STALLED, message="")
            self._kill(f"its process was stopped (SIGSTOP) for {STOPPED_LIMIT_S:.0f} s")

    def next_deadline_s(self) -> float | None:
        return self._kill_at_s if self.alive and not self._killed else None

    def ended(self, status: int) -> None:
        """Its process was reaped with this wait status."""
        self.read()
        self.alive = False
        self.line.close()
        code, number = (
            (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.waitstatus_to_exitcode(status), None)
        )
        cause, message = self.report.cause, self.report.message
        if cause is None:
            cause, message = self._guess(code, number)
        elif self._killed and not message:
            message = self._killed
        self._change(phase=Phase.EXITED, exit_code=code, signal=number, cause=cause, message=message)

    def gone(self) -> None:
        self._change(phase=Phase.GONE)

    def _guess(self, code: int | None, number: int | None) -> tuple[Cause, str]:
        if self._killed:
            return Cause.KILLED, self._killed
        if number == signal.SIGKILL and processes.oom_kills() > self._oom_kills[0]:
            return Cause.OUT_OF_MEMORY, "killed by SIGKILL when the kernel killed for want of memory on this host"
        if number is not None:
            return Cause.SIGNAL, f"killed by {_signal_name(number)}"
        return Cause.USER_EXCEPTION, f"the process ended by itself with exit code {code} before training was finished"

    def _stop(self, stop: Stop, now_s: float) -> None:
        kill_at_s = now_s + stop.grace_s
        self._kill_at_s = kill_at_s if self._kill_at_s is None else min(self._kill_at_s, kill_at_s)
        if stop.grace_s <= 0:
            self._kill(f"killed at once: {stop.why}")
        elif not self._signalled:
            self._signalled = True
            self._send(signal.Signals[self.target.spec.job.signal])

    def _kill(self, why: str) -> None:
        """The pid is an unreaped child's, so it cannot be another's."""
        if not self._killed:
            self._killed = why
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _why(self) -> str:
        return self.target.want.why if isinstance(self.target.want, Stop) else ""

    def _change(self, **changes: object) -> None:
        self.report = msgspec.structs.replace(self.report, seq=self.report.seq + 1, **changes)


def _signal_name(number: int) -> str:
    """Only the first and last of the real-time signals have names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
