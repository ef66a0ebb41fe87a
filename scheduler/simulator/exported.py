"""The history of a live cluster (`jct history --export`) as a workload: CSV or JSON lines.

A job's menu are the shapes in which it and others of the same model ran, each with the median of its step times; what
nobody ran, no policy may choose. Jobs of which no attempt made two steps are left out, and counted: nothing tells how
much work they were, or how fast it went. Of a job that did not complete, the work is what it did.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from policies.model.cluster import MeasuredMenu, MeasuredRow
from scheduler.simulator.workload import BadWorkload, SimulatedJob, Workload, named_plan

COLUMNS = {"job", "submitted", "steps", "runs", "model"}
LEFT_OUT = {"no-step": "never made a step", "no-speed": "made too few steps to tell their speed"}
"""Why a job cannot be played, and its words."""
Run = dict[str, Any]


def is_export(path: Path) -> bool:
    """By its first line."""
    with path.open() as file:
        first = file.readline()
    return first.startswith("{") or set(first.strip().split(",")) >= COLUMNS


def read_export(path: Path, kinds: Mapping[str, int]) -> Workload:
    """kinds: devices of each kind in the cluster to simulate; where it and the export have one each, they are taken to
    be the same. Raises BadWorkload."""
    try:
        return _read(path, kinds)
    except BadWorkload:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise BadWorkload(f"{path}: this is no export of `jct history`, or one that was changed ({why})") from error


def _read(path: Path, kinds: Mapping[str, int]) -> Workload:
    rows = []
    left_out: Counter[str] = Counter()
    for row in _rows(path):
        if lacking := COLUMNS - row.keys():
            raise BadWorkload(f"{path}: this is no export of `jct history`: a job lacks {', '.join(sorted(lacking))}")
        if row["steps"] and row["runs"]:
            rows.append(row)
        else:
            left_out["no-speed" if row["steps"] else "no-step"] += 1
    if not rows:
        raise BadWorkload(f"{path}: {told(left_out) or '0 jobs in it'}; nothing is left to simulate")
    names = {str(run["kind"] or "gpu") for row in rows for run in row["runs"]}
    alias = {name: next(iter(kinds)) for name in names} if len(names) == len(kinds) == 1 else {}
    menus: dict[str, MeasuredMenu] = {}
    jobs: list[SimulatedJob] = []
    first = min(datetime.fromisoformat(row["submitted"]) for row in rows)
    for row in rows:
        low, high = _range(row)
        name = f"{row['model']}/{low}-{high}"
        if name not in menus:
            runs = [run for other in rows if other["model"] == row["model"] for run in other["runs"]]
            menus[name] = _menu(runs, low, high, alias)
        if not any(_fits(option, kinds) for option in menus[name].rows):
            shapes = ", ".join(sorted({f"{option.devices} {option.kind}" for option in menus[name].rows}))
            raise BadWorkload(f"{path}: job {row['job']} ran on {shapes}; the cluster to simulate has {_said(kinds)}")
        jobs.append(_job(row, name, (datetime.fromisoformat(row["submitted"]) - first).total_seconds()))
    return Workload(tuple(sorted(jobs, key=lambda job: job.submit_s)), menus, left_out)


def told(left_out: Mapping[str, int]) -> str:
    """How many jobs are left out, and why; empty where none is."""
    reasons = ", ".join(f"{count} {LEFT_OUT[reason]}" for reason, count in left_out.items())
    return f"{sum(left_out.values())} jobs left out: {reasons}" if reasons else ""


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    try:
        with path.open(newline="") as file:
            is_csv = file.read(1) != "{"
            file.seek(0)
            if not is_csv:
                yield from (json.loads(line) for line in file if line.strip())
                return
            for row in csv.DictReader(file):
                yield {**row, "runs": json.loads(row["runs"]), "steps": float(row["steps"]) if row["steps"] else None}
    except (ValueError, KeyError) as error:
        raise BadWorkload(f"{path}: this is no export of `jct history`: {error}") from error


def _range(row: Mapping[str, Any]) -> tuple[int, int]:
    """The job's last range, and what it ran on before that was changed."""
    ran = [sum(run["per_node"]) for run in row["runs"]]
    return min(int(row["gpus_min"]), *ran), max(int(row["gpus_max"]), *ran)


def _menu(runs: list[Run], low: int, high: int, alias: Mapping[str, str]) -> MeasuredMenu:
    times: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for run in runs:
        kind, devices = str(run["kind"] or "gpu"), sum(run["per_node"])
        if low <= devices <= high:
            key = (alias.get(kind, kind), devices, str(run["plan"]))
            times.setdefault(key, []).append((float(run["step_time_s"]), float(run["start_s"])))
    return MeasuredMenu(
        tuple(
            MeasuredRow(
                kind, (), devices, named_plan(plan, devices), median(step_s for step_s, _ in seen),
                median(start_s for _, start_s in seen),
            )
            for (kind, devices, plan), seen in sorted(times.items())
        )
    )


def _fits(option: MeasuredRow, kinds: Mapping[str, int]) -> bool:
    return option.devices <= kinds.get(option.kind, 0)


def _said(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _job(row: dict[str, Any], application: str, submit_s: float) -> SimulatedJob:
    asked = row["gpus_preferred"] or sum(row["runs"][0]["per_node"])
    return SimulatedJob(
        f"{row['name']}-{row['job']}", submit_s, application, float(row["steps"]), int(asked), row["team"] or "default"
    )
