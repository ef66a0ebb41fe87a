"""`jct train` and `jct checkpoints`: handed to a worker process, since only the worker knows torch."""

import os
import signal
import subprocess
import sys
from typing import Annotated

import msgspec
import typer

from scheduler.cli.submit import read_document
from scheduler.jobfile import parse_document


def train(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML or JSON job file; - for standard input.")],
    stages: Annotated[int, typer.Option(help="Stages of the pipeline.")] = 1,
    replicas: Annotated[int, typer.Option(help="Replicas of the pipeline.")] = 1,
    schedule: Annotated[str, typer.Option(help="gpipe, 1f1b, zb-h1, interleaved-1f1b, zbv, ...")] = "1f1b",
    microbatches: Annotated[int | None, typer.Option(help="Micro-batch COUNT of a step.")] = None,
    slices: Annotated[int, typer.Option(help="Token slices of each micro-batch, for sliced-1f1b.")] = 1,
    recompute: Annotated[bool, typer.Option("--recompute", help="Compute activations again, to save memory.")] = False,
    offload: Annotated[bool, typer.Option("--offload", help="Keep the optimizer's state in host memory.")] = False,
    cut: Annotated[str, typer.Option(help="Cut into stages evenly by layers, or by measured time.")] = "layers",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps.")] = None,
    change: Annotated[list[str] | None, typer.Option(help='"5:stages=2,schedule=zb-h1": before step 5.')] = None,
    migrate: Annotated[list[str] | None, typer.Option(help='"8:2->1": before step 8, a layer of stage 2.')] = None,
    adapt: Annotated[bool, typer.Option("--adapt", help="Change the cut when a device or link slows down.")] = False,
    adapt_with: Annotated[str | None, typer.Option(help='Settings for --adapt: "held_s=5,cooldown_s=60".')] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint directory.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Write one JSON object a step to this file.")] = None,
    profile: Annotated[str | None, typer.Option(help="Measure convergence; write it with a profile here.")] = None,
    measure_after: Annotated[int, typer.Option(help="Steps of warm-up before it is measured.")] = 50,
) -> int:
    """Train one job on this machine, without a daemon, with scripted changes of its shape."""
    spec = parse_document(read_document(file))
    options: dict[str, object] = {
        "stages": stages, "replicas": replicas, "schedule": schedule, "microbatches": microbatches,
        "slices": slices, "cut": cut, "device": device, "dtype": dtype,
        "steps": steps, "checkpoint": checkpoint, "metrics": metrics,
        "profile": profile, "measure-after": measure_after,
        "adapt": adapt_with if adapt_with is not None else "" if adapt else None,
    }  # fmt: skip
    command = ["train", "-", "--parent", str(os.getpid())]
    command += ["--recompute"] * recompute + ["--offload"] * offload
    for name, value in options.items():
        command += [] if value is None else [f"--{name}", str(value)]
    for name, values in (("change", change), ("migrate", migrate)):
        for text in values or ():
            command += [f"--{name}", text]
    return _worker(command, msgspec.json.encode(spec))


def checkpoints(
    what: Annotated[str, typer.Argument(metavar="show|verify|half", help="What to do with it.")],
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A checkpoint directory.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[str | None, typer.Option(help="half: the folder for copies in half precision.")] = None,
    dtype: Annotated[str, typer.Option(help="half: float16 or bfloat16.")] = "float16",
) -> int:
    """Explain a checkpoint directory, check every hash in it (exit code 1: damaged), or copy it in half precision."""
    command = ["checkpoints", what, directory, "--dtype", dtype, *(["--json"] if json else [])]
    return _worker([*command, *(["--out", out] if out is not None else [])])


def _worker(command: list[str], stdin: bytes | None = None) -> int:
    """-P: a scheduler.py in the current folder must not shadow ours. It gets signals that come here, and is waited for:
    killed, it would leave the training behind."""
    line = [sys.executable, "-P", "-m", "worker", *command]
    with subprocess.Popen(line, stdin=None if stdin is None else subprocess.PIPE) as process:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, lambda number, _: process.send_signal(number))
        process.communicate(stdin)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
