"""From 4 to 2 stages with about 200 MB of state, to the end of the next step: live, from a zygote, and by torchrun.

Wanted: live >= 8x faster than torchrun and load, from the zygote >= 4x. Everything runs in one go on one machine. What
the step before a live change takes longer, because it carries layers, counts as part of the change.

    python -m benchmarks.resize
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.protocol.spec import AttemptSpec, CheckpointSpec, JobSpec
from worker.launcher import Launched, start_shim

ARGUMENTS = {"width": 416, "blocks": 8, "context": 32, "steps": 8, "global_batch": 4, "validate_every": 0}
FOUR, TWO = (0, 3, 5, 8, 10), (0, 5, 10)
REPEATS = 3
CHANGED_AT = 10
"""Finished steps; by then the first ones, which allocate, are past."""


def shape(bounds: tuple[int, ...]) -> ParallelPlan:
    stages = (StagePlan(first, stop, (i,), (4,)) for i, (first, stop) in enumerate(itertools.pairwise(bounds)))
    return ParallelPlan(tuple(stages), 4, 1)


def launch(folder: Path, bounds: tuple[int, ...], hold_at: tuple[int, ...] = (), steps: int = 8) -> Launched:
    job = JobSpec(
        name="resize",
        entrypoint="worker.models.gpt_stdlib:pipeline_job",
        workdir=str(folder),
        arguments={**ARGUMENTS, "steps": steps},
        checkpoint=CheckpointSpec(dir=str(folder / "checkpoints"), every_s=0),
    )
    spec = AttemptSpec(kind="train", job=job, nonce="benchmark", hold_at=hold_at)
    attempt = 1 + len(list(folder.glob("1.*")))
    return Launched(folder / f"1.{attempt}", spec, shape(bounds), start_shim)


def lines(launched: Launched) -> list[dict]:
    return [json.loads(line) for line in (launched.folder / "metrics.jsonl").read_text().splitlines()]


def change(folder: Path, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[float, float, float]:
    """Of a live change: seconds that the step before it took longer, of the pause, and of the step after it."""
    launched = launch(folder, old, hold_at=(CHANGED_AT,), steps=CHANGED_AT + 2)
    launched.wait(Launched.is_running)
    launched.change(shape(new))
    launched.wait()
    launched.hang_up()
    steps = {line["step"]: line for line in lines(launched) if "loss" in line}
    usual_s = statistics.median(steps[step]["step_time_s"] for step in range(3, CHANGED_AT))
    carrying, after = steps[CHANGED_AT], steps[CHANGED_AT + 1]
    return carrying["pause_s"] + carrying["step_time_s"] - usual_s, after["pause_s"], after["step_time_s"]


def zygote(folder: Path) -> float:
    """Two members forked from a shim that has imported torch: from the first fork to the end of the first step."""
    launched = launch(folder, FOUR)
    launched.wait(lambda it: bool(it.reports) and Launched.is_running(it) and (it.pilot.step or 0) >= 2)
    launched.stop(grace_s=60)
    launched.wait()
    launched.hang_up()
    again = launch(folder, TWO)
    started = time.perf_counter()
    resumed = launched.pilot.step or 0
    again.wait(lambda it: any((report.step or 0) > resumed for report in it.reports.values()))
    seconds = time.perf_counter() - started
    again.stop(grace_s=0)
    again.wait()
    again.hang_up()
    return seconds


def torchrun(folder: Path) -> float:
    """The usual way: new processes, a default group, load, one step."""
    script = Path(__file__).with_name("data") / "torchrun_resume.py"
    started = time.time()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    done = subprocess.run(
        [*command, str(folder / "checkpoints")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1]) - started


def main() -> None:
    found: dict[str, list[float]] = {"live": [], "zygote": [], "torchrun": []}
    for _ in range(REPEATS):
        folder = Path(tempfile.mkdtemp(prefix="resize-"))
        try:
            found["zygote"].append(zygote(folder))
            found["torchrun"].append(torchrun(folder))
            shutil.rmtree(folder / "checkpoints")
            found["live"].append(sum(change(folder, FOUR, TWO)))
        finally:
            shutil.rmtree(folder)
    middle = {name: statistics.median(times) for name, times in found.items()}
    for name, seconds in middle.items():
        print(f"{name}: {seconds:.2f} s, {middle['torchrun'] / seconds:.1f}x torchrun")


if __name__ == "__main__":
    main()
