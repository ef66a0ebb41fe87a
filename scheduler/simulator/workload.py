"""Workloads to simulate: lists of jobs as others publish them."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from policies.ir.plan import ParallelPlan, StagePlan
from policies.jct.problem import NodeRoom, Option
from policies.jct.rooms import Rooms
from policies.model.cluster import MeasuredMenu, MeasuredRow

RUBICK = {"name", "submission_time", "application", "num_gpus", "steps"}
PHILLY = {"submit_s", "num_gpus", "duration_s"}
MOST_S, MOST_STEPS = 1e10, 1e12
"""Seconds may count from 1970."""


class BadWorkload(ValueError):
    """A file that cannot be simulated: what is wrong, where, and what would do."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """count nodes with `devices` devices of one kind each."""

    count: int
    devices: int
    kind: str = "gpu"


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
    """jobs by time of submission; menus by application; how many jobs of the file are not among them, by reason."""

    jobs: tuple[SimulatedJob, ...]
    menus: dict[str, MeasuredMenu]
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_workload(path: Path, profiles: Path | None, nodes: Sequence[Nodes], restart_s: float) -> Workload:
    """Read a list of jobs in the Rubick format (with profiles) or in Philly's (rigid jobs, a step is a second).

    Menus hold what fits on the nodes, whose kinds are those of `profiles/<kind>/`. Raises BadWorkload.
    """
    return on_nodes(_read(path, profiles, list(dict.fromkeys(group.kind for group in nodes)), restart_s, nodes), nodes)


def on_nodes(workload: Workload, nodes: Sequence[Nodes]) -> Workload:
    """With menus of what fits on these nodes. Raises BadWorkload: a job that would wait for ever."""
    menus = {name: _fitting(menu, nodes) for name, menu in workload.menus.items()}
    for job in workload.jobs:
        if not menus[job.application].rows:
            least = min(row.devices for row in workload.menus[job.application].rows)
            raise BadWorkload(
                f"job {job.name} fits nowhere on these nodes: it needs at least {least} devices of one kind, in an "
                "arrangement that was measured; give more or larger --nodes"
            )
    return replace(workload, menus=menus)


def _fitting(menu: MeasuredMenu, nodes: Sequence[Nodes]) -> MeasuredMenu:
    """Without rows for which the cluster has no place, however empty it is."""
    groups = [group for group in nodes for _ in range(group.count)]
    empty = Rooms(NodeRoom(str(n), group.kind, group.devices, group.devices) for n, group in enumerate(groups))

    def fits(row: MeasuredRow) -> bool:
        return bool(empty.find(Option(row.kind, row.devices, row.step_time_s, row.restart_s, row.plan, row.per_node)))

    return MeasuredMenu(tuple(filter(fits, menu.rows)))


def _read(
    path: Path, profiles: Path | None, kinds: Sequence[str], restart_s: float, nodes: Sequence[Nodes]
) -> Workload:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise BadWorkload(f"{path}: no jobs")
    columns = set(rows[0])
    if columns >= RUBICK:
        jobs = _jobs(path, rows, _rubick_job)
        if profiles is None:
            raise BadWorkload(f"{path}: jobs name applications; give the folder of their placements with --profiles")
        menus = {name: read_menu(profiles, name, kinds, restart_s) for name in {job.application for job in jobs}}
        return Workload(jobs, menus)
    if columns >= PHILLY:
        jobs = _jobs(path, rows, _philly_job)
        sizes = {job.asked for job in jobs}
        menus = {f"rigid-{size}": rigid(size, nodes, restart_s) for size in sorted(sizes)}
        return Workload(jobs, menus)
    raise BadWorkload(
        f"{path}: columns {', '.join(sorted(columns))}; a list of jobs has {', '.join(sorted(RUBICK))} (Rubick) or "
        f"{', '.join(sorted(PHILLY))} (Philly)"
    )


def _jobs(
    path: Path, rows: Sequence[dict[str, str]], job_of: Callable[[dict[str, str], int], SimulatedJob]
) -> tuple[SimulatedJob, ...]:
    """By time of submission. Raises BadWorkload."""
    found: dict[str, SimulatedJob] = {}
    for number, row in enumerate(rows):
        try:
            job = job_of(row, number)
        except BadWorkload as error:
            raise BadWorkload(f"{path}, job {number + 1}: {error}") from error
        if job.name in found:
            raise BadWorkload(f"{path}, job {number + 1}: another job is named {job.name!r} too; names are for one")
        found[job.name] = job
    return tuple(sorted(found.values(), key=lambda job: job.submit_s))


def _rubick_job(row: dict[str, str], number: int) -> SimulatedJob:
    return SimulatedJob(
        row["name"], _number(row, "submission_time"), row["application"], _number(row, "steps", MOST_STEPS),
        _count(row),
    )  # fmt: skip


def _philly_job(row: dict[str, str], number: int) -> SimulatedJob:
    size = _count(row)
    return SimulatedJob(
        f"job-{number}", _number(row, "submit_s"), f"rigid-{size}", _number(row, "duration_s"), size,
        row.get("vc") or "default",
    )  # fmt: skip


def _number(row: Mapping[str, str | None], column: str, most: float = MOST_S) -> float:
    try:
        value = float(row[column] or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise BadWorkload(f"{column} is {row[column]!r}; it must be a number from 0 to {most:g}")
    return value


def _count(row: Mapping[str, str | None]) -> int:
    text = row["num_gpus"] or ""
    if not (text.isdecimal() and int(text)):
        raise BadWorkload(f"num_gpus is {row['num_gpus']!r}; it must be a whole number from 1 on")
    return int(text)


def rigid(size: int, nodes: Sequence[Nodes], restart_s: float) -> MeasuredMenu:
    """One size, on as few nodes as possible: for each kind, and each size of its nodes."""
    rows: dict[tuple[str, tuple[int, ...]], MeasuredRow] = {}
    for group in nodes:
        whole, rest = divmod(size, group.devices)
        shape = (group.devices,) * whole + ((rest,) if rest else ())
        rows[group.kind, shape] = _row(group.kind, shape, "rigid", 1.0, restart_s)
    return MeasuredMenu(tuple(rows.values()))


def read_menu(profiles: Path, application: str, kinds: Sequence[str], restart_s: float) -> MeasuredMenu:
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
