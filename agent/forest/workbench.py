"""Processes of a calibration: the pipeline that is disturbed, and what disturbs it. All of them end with this one."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.forest import isolation

LINK = "link"
FULL_LINK_BYTES_PER_S, LEAST_LINK_BYTES_PER_S = 6e7, 6e6
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Step(NamedTuple):
    """Of one stage. end_s: on the monotonic clock. busy_s: the part of step_s in which it computed and sent, or would
    have been if others had not; cpu_s: the part of that on a core."""

    stage: int
    end_s: float
    step_s: float
    busy_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """strength: above 0, at most 1. core: that it is pinned to, if any."""

    kind: str
    strength: float
    core: int | None = None

    def __str__(self) -> str:
        where = f" on core {self.core}" if self.core is not None else ""
        return f"{self.kind} {self.strength:g}{where}"


@dataclass(slots=True)
class Pipeline:
    """pids: of each stage. steps: as they end; the list only grows."""

    pids: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)


class BrokenBench(RuntimeError):
    """A process of the calibration did not start, or has ended."""


@contextlib.contextmanager
def pipeline(cores: Sequence[int], batch: int, rest: float = 0.0) -> Iterator[Pipeline]:
    """One stage a core. rest: how long it sleeps between steps, as a multiple of its work. Raises BrokenBench."""
    options = "--cores", ",".join(map(str, cores)), "--batch", str(batch), "--rest", f"{rest:g}"
    with _child("agent.forest.stage", *options) as process:
        assert process.stdout is not None
        first = process.stdout.readline().split()
        if len(first) != len(cores):
            raise BrokenBench("the pipeline did not start")
        found = Pipeline(tuple(map(int, first)))
        reader = threading.Thread(target=_read, args=(process.stdout, found.steps), daemon=True)
        reader.start()
        yield found


@contextlib.contextmanager
def disturbed(disturbances: Sequence[Disturbance], apart: bool = False) -> Iterator[None]:
    """All of them at once, working when this is entered. apart: each in a session of its own, as strangers are: a
    kernel that groups processes by session gives those of one session the part of one. Raises BrokenBench."""
    with contextlib.ExitStack() as stack:
        for one in disturbances:
            stack.enter_context(_shaped(one.strength) if one.kind == LINK else _interferer(one, apart))
        yield


@contextlib.contextmanager
def _interferer(one: Disturbance, apart: bool) -> Iterator[None]:
    where = ["--core", str(one.core)] if one.core is not None else []
    with _child("agent.forest.interferer", one.kind, f"{one.strength:g}", *where, apart=apart) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BrokenBench(f"the interferer {one} did not start")
        yield


@contextlib.contextmanager
def _shaped(strength: float) -> Iterator[None]:
    """The stronger, the slower: from 60 MB/s down to 6."""
    rate = FULL_LINK_BYTES_PER_S * (LEAST_LINK_BYTES_PER_S / FULL_LINK_BYTES_PER_S) ** strength
    if why := isolation.shape(rate):
        raise BrokenBench(why)
    try:
        yield
    finally:
        isolation.unshape()


@contextlib.contextmanager
def _child(module: str, *arguments: str, apart: bool = False) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-P", "-m", module, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **_ONE_THREAD},
        start_new_session=apart,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _read(lines: Iterator[str], steps: list[Step]) -> None:
    with contextlib.suppress(ValueError):  # the last line may be cut off
        for line in lines:
            stage, end_s, step_s, busy_s, cpu_s = line.split()
            steps.append(Step(int(stage), float(end_s), float(step_s), float(busy_s), float(cpu_s)))
