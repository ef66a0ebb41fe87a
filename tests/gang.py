"""Real gangs for tests: plans, specs, and runs of tiny jobs under real shims."""

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shims import ShimFactory

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.protocol.spec import AttemptSpec, CheckpointSpec, JobSpec
from worker import processes
from worker.launcher import Launched

JOBS = Path(__file__).parent / "jobs"


def plan(
    bounds: Sequence[int],
    microbatches: int = 4,
    size: int = 2,
    schedule: str = "1f1b",
    precision: str = "float32",
    shares: tuple[int, ...] | None = None,
    stage_rank: Sequence[int] | None = None,
) -> ParallelPlan:
    """Stages between these layer bounds; one rank a stage, or one for each share.

    stage_rank: pipeline rank of each stage; replica j of pipeline rank r is rank r * replicas + j.
    """
    shares = shares or (microbatches,)
    replicas = len(shares)
    stage_rank = stage_rank or range(len(bounds) - 1)
    stages = tuple(
        StagePlan(first, stop, tuple(range(rank * replicas, (rank + 1) * replicas)), shares)
        for rank, (first, stop) in zip(stage_rank, itertools.pairwise(bounds), strict=True)
    )
    return ParallelPlan(stages, microbatches, size, schedule, precision)


ATTEMPT_FIELDS = ("fingerprint", "start_timeout_s", "nonce", "hold_at", "profile", "measure_after")


class Site:
    """A node's attempts folder and a checkpoint directory. Attempts are numbered as they come."""

    def __init__(self, folder: Path, shims: ShimFactory) -> None:
        self.folder, self.shims = folder, shims
        self.attempt = 0
        self.checkpoints = folder / "checkpoints"
        self.launched: list[Launched] = []

    def spec(self, kind: str = "train", entrypoint: str = "tiny:job", **changes: Any) -> AttemptSpec:
        """arguments, workdir, env, ... are JobSpec fields; every_s, keep, resume, directory are the checkpoint's."""
        directory = changes.pop("directory", self.checkpoints)
        checkpoint = {key: changes.pop(key) for key in ("every_s", "keep", "resume") if key in changes}
        attempt = {key: changes.pop(key) for key in ATTEMPT_FIELDS if key in changes}
        fields: dict[str, Any] = {"name": "test", "entrypoint": entrypoint, "workdir": str(JOBS), **changes}
        if directory is not None:
            fields["checkpoint"] = CheckpointSpec(dir=str(directory), **checkpoint)
        return AttemptSpec(kind=kind, job=JobSpec(**fields), **{"nonce": "n" + self.folder.name, **attempt})

    def launch(
        self, plan: ParallelPlan | None, spec: AttemptSpec | None = None, start: Callable[[Path], object] | None = None
    ) -> Launched:
        self.attempt += 1
        folder = self.folder / "attempts" / f"1.{self.attempt}"
        launched = Launched(folder, spec or self.spec(), plan, start or self.shims.start)
        self.launched.append(launched)
        return launched

    def close(self) -> None:
        """End what a failed test left over."""
        for launched in self.launched:
            if not launched.is_gone():
                try:
                    launched.stop(0)
                    launched.wait(timeout_s=10)
                except (OSError, TimeoutError):
                    pass
            launched.hang_up()


def metrics(launched: Launched) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (launched.folder / "metrics.jsonl").read_text().splitlines()]


def curve(*attempts: Launched) -> dict[int, tuple[str, str]]:
    """Loss and gradient norm by step, all bits; a later attempt's steps replace an earlier one's."""
    return {
        line["step"]: (line["loss_hex"], line["grad_norm_hex"])
        for launched in attempts
        for line in metrics(launched)
        if "loss" in line
    }


def log(launched: Launched, member: int = 0) -> str:
    return (launched.folder / f"member-{member}.log").read_text()


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def member_pids(launched: Launched) -> dict[int, int]:
    """Pid of each living member: children of the shim that carry a member's log as their output."""
    assert launched.hello is not None
    found = {}
    for process in processes.descendants(launched.hello.pid):
        try:
            output = os.readlink(f"/proc/{process.pid}/fd/1")
        except OSError:  # it has just ended
            continue
        if process.parent == launched.hello.pid and output.startswith(str(launched.folder / "member-")):
            found[int(output.rpartition("-")[2].removesuffix(".log"))] = process.pid
    return found
