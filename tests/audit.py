"""An outsider's replay of a simulation's decisions: nothing of the scheduler is believed but the log."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]


def read_rows(folder: Path, application: str) -> dict[tuple[str, Shape], float]:
    """Measured seconds a step by plan and placement, in every rotation and its reverse."""
    rows: dict[tuple[str, Shape], float] = {}
    with (folder / f"{application}-placements.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                seconds, shape = float(row["iter_time"]), tuple(map(int, row["placement"]))
            except ValueError:
                continue
            for way in (shape, shape[::-1]):
                for start in range(len(way)):
                    key = (row["exec_plan"], way[start:] + way[:start])
                    if seconds > 0:
                        rows[key] = min(seconds, rows.get(key, seconds))
    return rows


def replay(
    workload: list[dict[str, str]], folder: Path, changes: list[dict[str, Any]], *, nodes: int, per_node: int,
    round_s: float, restart_s: float,
) -> dict[str, float]:  # fmt: skip
    """Every job's completion time. Asserts that the log breaks no rule."""
    jobs = {row["name"]: row for row in workload}
    rows = {app: read_rows(folder, app) for app in {row["application"] for row in workload}}
    left = {name: float(row["steps"]) for name, row in jobs.items()}
    holds: dict[str, tuple[dict[str, int], float, float]] = {}  # placement, when it goes on, seconds a step
    ends: dict[str, float] = {}
    at = 0.0
    for change in [*changes, None]:
        until = change["time_s"] if change is not None else float("inf")
        assert until >= at
        for name, (_, since, step_s) in list(holds.items()):
            end = max(at, since) + left[name] * step_s
            if end <= until:
                ends[name] = end
                del holds[name]
            else:
                left[name] -= max(0.0, until - max(at, since)) / step_s
        at = until
        if change is None:
            break
        name, placement = change["job"], change["placement"]
        job = jobs[name]
        assert until % round_s == 0, change
        assert until >= float(job["submission_time"]), change
        assert name not in ends, change
        holds.pop(name, None)
        if placement:
            shape = tuple(placement[node] for node in sorted(placement, key=int))
            holds[name] = (placement, until + restart_s, rows[job["application"]][change["plan"], shape])
        if change is changes[-1] or changes[changes.index(change) + 1]["time_s"] > until:
            used = Counter[str]()
            for held, _, _ in holds.values():
                used.update(held)
            assert all(0 <= int(node) < nodes and count <= per_node for node, count in used.items()), change
    assert not any(name for name in left if name not in ends), "jobs without an end"
    return {name: ends[name] - float(jobs[name]["submission_time"]) for name in ends}
