"""Members of command jobs: any program, started once the gang's rendezvous address is known, with torchrun's variables.

The member's process reads Targets until one has the address, says that it is up, and becomes the program. From there on
its shim knows it by its process alone: an exit with 0 is a finish, unless it was told to stop.
"""

import json
import os
import socket
from pathlib import Path

from scheduler.protocol.codec import Unframer, decode_target, frame
from scheduler.protocol.messages import Cause, Phase, Report, Stop, Target
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


def _tail(file: Path) -> bytes:
    try:
        with file.open("rb") as reading:
            size = reading.seek(0, os.SEEK_END)
            reading.seek(max(0, size - TAIL_BYTES))
            return reading.read()
    except OSError:
        return b""


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
    devices = [places[number][1] for number in here]
    visible = [device for device in devices if device.startswith(("GPU-", "MIG-"))]
    return {
        "RANK": str(own),
        "LOCAL_RANK": str(here.index(own)),
        "WORLD_SIZE": str(len(places)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_RANK": str(nodes.index(node)),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "NODE_RANK": str(nodes.index(node)),
        "NNODES": str(len(nodes)),
        "CUDA_VISIBLE_DEVICES": ",".join(visible),
        "JCT_PROGRESS_FILE": str(folder / PROGRESS.format(member=own)),
    }


def become(line: socket.socket, environment: dict[str, str]) -> int:
    """In the member's process: wait for the address, then be the program. Returns an exit code where it cannot."""
    target = _with_store(line)
    if target is None or target.store is None:
        return EXIT_CANNOT_RUN
    host, _, port = target.store.rpartition(":")
    job = target.spec.job
    report = Report(job=target.job, attempt=target.attempt, member=target.member, seq=1, phase=Phase.TRAINING)
    try:
        os.chdir(job.workdir)
        line.sendall(frame(report))
        os.execvpe(job.command[0], list(job.command), {**environment, "MASTER_ADDR": host, "MASTER_PORT": port})  # noqa: S606
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        why = f"cannot run {job.command[0][:200]!r} in {job.workdir}: {what}"
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
