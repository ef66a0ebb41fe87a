"""Workloads to simulate: lists of jobs as others publish them."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import MeasuredMenu, MeasuredRow

RUBICK = {"name", "submission_time", "application", "num_gpus", "steps"}
PHILLY = {"submit_s", "num_gpus", "duration_s"}


class BadWorkload(ValueError):
    """A file that cannot be simulated: what is wrong, where, and what would do."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """steps: the work, in the unit of the menu's step times. asked: the devices its user asked for."""

    name: str
    submit_s: float
    application: str
    steps: float
    asked: int
    team: str = "default"


@dataclass(frozen=True, slots=True)
class Workload:
    """jobs by time of submission; menus by application."""

    jobs: tuple[SimulatedJob, ...]
    menus: dict[str, MeasuredMenu]


def read_workload(
    path: Path, profiles: Path | None, kinds: dict[str, int], restart_s: float, per_node: int
) -> Workload:
    """Read a list of jobs in the Rubick format (with profiles) or in Philly's (rigid jobs, a step is a second).

    kinds: device kinds of the cluster, for `profiles/<kind>/`. Raises BadWorkload.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise BadWorkload(f"{path}: no jobs")
    columns = set(rows[0])
    if columns >= RUBICK:
        jobs = tuple(sorted(map(_rubick_job, rows), key=lambda job: job.submit_s))
        if profiles is None:
            raise BadWorkload(f"{path}: jobs name applications; give the folder of their placements with --profiles")
        menus = {name: read_menu(profiles, name, kinds, restart_s) for name in {job.application for job in jobs}}
        return Workload(jobs, menus)
    if columns >= PHILLY:
        jobs = tuple(sorted(map(_philly_job, rows, range(len(rows))), key=lambda job: job.submit_s))
        sizes = {job.asked for job in jobs}
        menus = {f"rigid-{size}": rigid(size, kinds, restart_s, per_node) for size in sorted(sizes)}
        return Workload(jobs, menus)
    raise BadWorkload(
        f"{path}: columns {', '.join(sorted(columns))}; a list of jobs has {', '.join(sorted(RUBICK))} (Rubick) or "
        f"{', '.join(sorted(PHILLY))} (Philly)"
    )


def _rubick_job(row: dict[str, str]) -> SimulatedJob:
    return SimulatedJob(
        row["name"], float(row["submission_time"]), row["application"], float(row["steps"]), int(row["num_gpus"])
    )


def _philly_job(row: dict[str, str], number: int) -> SimulatedJob:
    size = int(row["num_gpus"])
    return SimulatedJob(
        f"job-{number}", float(row["submit_s"]), f"rigid-{size}", float(row["duration_s"]), size,
        row.get("vc") or "default",
    )  # fmt: skip


def rigid(size: int, kinds: Iterable[str], restart_s: float, per_node: int) -> MeasuredMenu:
    """One size, on as few nodes as possible."""
    whole, rest = divmod(size, per_node)
    shape = (per_node,) * whole + ((rest,) if rest else ())
    return MeasuredMenu(tuple(_row(kind, shape, "rigid", 1.0, restart_s) for kind in kinds))


def read_menu(profiles: Path, application: str, kinds: dict[str, int], restart_s: float) -> MeasuredMenu:
    """`<application>-placements.csv`, or one in a folder for each kind where there are several. Raises BadWorkload."""
    rows: list[MeasuredRow] = []
    for kind in kinds:
        folder = profiles if len(kinds) == 1 and not (profiles / kind).is_dir() else profiles / kind
        file = folder / f"{application}-placements.csv"
        if file.exists():
            rows += _read_rows(file, kind, restart_s)
    if not rows:
        raise BadWorkload(f"no measured placements of {application} in {profiles}")
    return MeasuredMenu(tuple(rows))


def _read_rows(file: Path, kind: str, restart_s: float) -> Iterable[MeasuredRow]:
    """Rows that were measured; digits are devices on each node."""
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            try:
                seconds = float(row["iter_time"])
                shape = tuple(int(digit) for digit in row["placement"])
            except (KeyError, ValueError):
                continue
            if seconds > 0 and shape and min(shape) > 0:
                yield _row(kind, shape, row["exec_plan"], seconds, restart_s)


def _row(kind: str, shape: tuple[int, ...], plan: str, seconds: float, restart_s: float) -> MeasuredRow:
    return MeasuredRow(kind, shape, sum(shape), named_plan(plan, sum(shape)), seconds, restart_s)


def named_plan(name: str, devices: int) -> ParallelPlan:
    """A plan known only by its measured step time: its stages do not matter, its name and device count do."""
    ranks = tuple(range(devices))
    return ParallelPlan((StagePlan(0, 1, ranks, (1,) * devices),), devices, 1, schedule=name)
