"""Members of command jobs: any program, started once the gang's rendezvous address is known, with torchrun's variables.

Where one process a node is asked for, the members beside a node's first only hold their devices and end as it ends.
The member's process reads Targets until one has the address, says that it is up, and becomes the program. From there on
its shim knows it by its process alone: an exit with 0 is a finish, unless it was told to stop.
"""

import json
import os
import signal
import socket
from pathlib import Path
from stat import S_ISREG

from scheduler.protocol.codec import Unframer, decode_target, frame
from scheduler.protocol.messages import Cause, Phase, Report, Stop, Target
from scheduler.protocol.spec import JobSpec
from worker.guard import Guard

PROGRESS = "progress-{member}.jsonl"
TAIL_BYTES = 65_536
NUMBERS = {"step": int, "total_steps": int, "saved": int, "loss": float, "step_time_s": float}
EXIT_CANNOT_RUN = 127


class CommandGuard(Guard):
    """Guards a program that does not speak to its shim. Progress comes from a file of JSON lines."""

    def __init__(self, target: Target, pid: int, line: socket.socket, folder: Path) -> None:
        super().__init__(target, pid, line)
        self._folder = folder
        self._progress: tuple[int, int] = (0, 0)

    def hung_up(self) -> None:
        """It has become the program."""
        self.silent = True

    def tick(self, now_s: float) -> None:
        super().tick(now_s)
        self._read_progress()

    def ended(self, status: int) -> None:
        self._read_progress()
        super().ended(status)

    def _guess(self, code: int | None, number: int | None) -> tuple[Cause, str]:
        cause, message = super()._guess(code, number)
        if isinstance(self.target.want, Stop) and not self._killed:
            return Cause.STOPPED, self.target.want.why
        if cause is not Cause.USER_EXCEPTION:
            return cause, message
        if code == 0:
            return Cause.FINISHED, ""
        if self.target.member == self.target.pilot and self._port_was_taken():
            return Cause.START_FAILED, f"the rendezvous port of {self.report.store} was taken meanwhile"
        return Cause.USER_EXCEPTION, f"the command ended with exit code {code}"

    def _port_was_taken(self) -> bool:
        """Between its lease and its use: no fault of the program's, if that is what it says and it never came far."""
        return self.report.step is None and b"EADDRINUSE" in _tail(self._folder / f"member-{self.target.member}.log")

    def _read_progress(self) -> None:
        """The last whole line with known fields; anything else in the file is the program's own business."""
        file = self._folder / PROGRESS.format(member=self.target.member)
        try:
            found = file.stat()
        except OSError:
            return
        if (found.st_size, found.st_mtime_ns) == self._progress:
            return
        self._progress = found.st_size, found.st_mtime_ns
        for line in reversed(_tail(file).split(b"\n")[:-1]):
            if said := _known(line):
                self._change(**said)
                return


class Placeholder(CommandGuard):
    """Holds a device for the program of its node's first member, and shares that one's end.

    Stops and signals are for the program: the device is in use until that has ended, however long its grace is.
    """

    _leader: Report | None = None

    def follow(self, leader: Report | None) -> None:
        """The program has ended, or there never was one."""
        self._leader = leader
        self._change(cause=leader.cause if leader else Cause.KILLED, message=leader.message if leader else self._why())
        super()._send(signal.SIGKILL)

    def tick(self, now_s: float) -> None:
        """It does nothing that could be late."""

    def _stop(self, stop: Stop, now_s: float) -> None:
        """The program's grace is this one's."""

    def _send(self, number: signal.Signals) -> None:
        """The program gets it."""

    def ended(self, status: int) -> None:
        super().ended(status)
        if self._leader is not None:
            self._change(exit_code=self._leader.exit_code, signal=self._leader.signal)


def command_guard(target: Target, pid: int, line: socket.socket, folder: Path) -> CommandGuard:
    kind = CommandGuard if leader_of(target) == target.member else Placeholder
    return kind(target, pid, line, folder)


def leader_of(target: Target) -> int:
    """The member whose process is the program: each its own, or the first of its node where there is one a node."""
    if target.spec.job.processes != "per_node":
        return target.member
    node = target.spec.places[target.member][0]
    return next(number for number, place in enumerate(target.spec.places) if place[0] == node)


def _tail(file: Path) -> bytes:
    """The program may have put anything there: a pipe that nobody writes to, a device without an end."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        return os.pread(descriptor, TAIL_BYTES, max(0, found.st_size - TAIL_BYTES)) if S_ISREG(found.st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _known(line: bytes) -> dict[str, float]:
    """Numbers of one line of progress that jctd understands; empty for anything else."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    numbers = {name: said[name] for name in NUMBERS if type(said.get(name)) in (int, float)}
    return {name: NUMBERS[name](value) for name, value in numbers.items() if 0 <= abs(value) < 2**53}


def variables(target: Target, folder: Path) -> dict[str, str]:
    """What torchrun would set, but for the rendezvous address. All devices of the job on this node are visible."""
    places, own = target.spec.places, target.member
    node = places[own][0]
    here = [number for number, place in enumerate(places) if place[0] == node]
    nodes = list(dict.fromkeys(place[0] for place in places))
    by_node = target.spec.job.processes == "per_node"
    devices = [places[number][1] for number in here]
    visible = [device for device in devices if device.startswith(("GPU-", "MIG-"))]
    return {
        "RANK": str(nodes.index(node) if by_node else own),
        "LOCAL_RANK": "0" if by_node else str(here.index(own)),
        "WORLD_SIZE": str(len(nodes) if by_node else len(places)),
        "LOCAL_WORLD_SIZE": "1" if by_node else str(len(here)),
        "JCT_GPUS_ON_NODE": str(len(here)),
        "GROUP_RANK": str(nodes.index(node)),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "NODE_RANK": str(nodes.index(node)),
        "NNODES": str(len(nodes)),
        "CUDA_VISIBLE_DEVICES": ",".join(visible),
        "JCT_PROGRESS_FILE": str(folder / PROGRESS.format(member=own)),
    }


def hold_place(line: socket.socket, target: Target) -> int:
    """In a member's process that has no program: it is up, and waits to be ended."""
    line.setblocking(True)
    line.sendall(frame(_up(target)))
    while line.recv(65_536):
        continue
    return 0


def _up(target: Target) -> Report:
    return Report(job=target.job, attempt=target.attempt, member=target.member, seq=1, phase=Phase.TRAINING)


def _program(job: JobSpec, folder: str, member: int) -> list[str]:
    """Arguments to run. A script becomes a file of this member's own, which the kernel starts by its first line."""
    if not job.script:
        return list(job.command)
    path = os.path.join(folder, f"script-{member}")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w", encoding="utf-8") as file:
        file.write(job.script)
    return [path]


def become(line: socket.socket, environment: dict[str, str]) -> int:
    """In the member's process: wait for the address, then be the program. Returns an exit code where it cannot."""
    target = _with_store(line)
    if target is None or target.store is None:
        return EXIT_CANNOT_RUN
    host, _, port = target.store.rpartition(":")
    job = target.spec.job
    program = job.command[0] if job.command else "its script"
    try:
        os.chdir(job.workdir)
        arguments = _program(job, environment["JCT_ATTEMPT_DIR"], target.member)
        line.sendall(frame(_up(target)))
        os.execvpe(arguments[0], arguments, {**environment, "MASTER_ADDR": host, "MASTER_PORT": port})  # noqa: S606
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        why = f"cannot run {program[:200]!r} in {job.workdir}: {what}"
        print(f"jctd: {why}", flush=True)
        end = Report(
            job=target.job, attempt=target.attempt, member=target.member, seq=2, phase=Phase.EXITED,
            cause=Cause.BAD_SPEC, message=why,
        )  # fmt: skip
        line.sendall(frame(end))
        return EXIT_CANNOT_RUN


def _with_store(line: socket.socket) -> Target | None:
    """The first Target that has the rendezvous address; None when the shim is gone."""
    unframer = Unframer()
    line.setblocking(True)
    while data := line.recv(65_536):
        for body in unframer.feed(data):
            target: Target = decode_target(body)
            if target.store is not None:
                return target
    return None
