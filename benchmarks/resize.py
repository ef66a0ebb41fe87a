"""From 4 to 2 stages with about 200 MB of state, to the end of the next step: live, from a zygote, and by torchrun.

Wanted: live >= 8x faster than torchrun and load, from the zygote >= 4x. Everything runs in one go on one machine.

    python benchmarks/resize.py
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


def shape(bounds: tuple[int, ...]) -> ParallelPlan:
    stages = (StagePlan(first, stop, (i,), (4,)) for i, (first, stop) in enumerate(itertools.pairwise(bounds)))
    return ParallelPlan(tuple(stages), 4, 1)


def launch(folder: Path, bounds: tuple[int, ...], hold_at: tuple[int, ...] = ()) -> Launched:
    job = JobSpec(
        name="resize",
        entrypoint="worker.models.gpt_stdlib:pipeline_job",
        workdir=str(folder),
        arguments=ARGUMENTS,
        checkpoint=CheckpointSpec(dir=str(folder / "checkpoints"), every_s=0),
    )
    spec = AttemptSpec(kind="train", job=job, nonce="benchmark", hold_at=hold_at)
    attempt = 1 + len(list(folder.glob("1.*")))
    return Launched(folder / f"1.{attempt}", spec, shape(bounds), start_shim)


def lines(launched: Launched) -> list[dict]:
    return [json.loads(line) for line in (launched.folder / "metrics.jsonl").read_text().splitlines()]


def live(folder: Path) -> float:
    """Pause and the first step of the new shape; the newcomers' import is hidden behind training, so there are none."""
    launched = launch(folder, FOUR, hold_at=(4,))
    launched.wait(Launched.is_running)
    launched.change(shape(TWO))
    launched.wait()
    launched.hang_up()
    changed = next(line for line in lines(launched) if line.get("plan", "").startswith("2"))
    return changed["pause_s"] + changed["step_time_s"]


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
            found["live"].append(live(folder))
        finally:
            shutil.rmtree(folder)
    middle = {name: statistics.median(times) for name, times in found.items()}
    for name, seconds in middle.items():
        print(f"{name}: {seconds:.2f} s, {middle['torchrun'] / seconds:.1f}x torchrun")


if __name__ == "__main__":
    main()
