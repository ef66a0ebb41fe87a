"""What a run came to, beside what no policy could do better than."""

import math
from statistics import fmean, median
from typing import Any

from policies.model.cluster import MeasuredMenu
from scheduler.simulator.simulate import Run
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload


def summarise(workload: Workload, nodes: list[Nodes], run: Run) -> dict[str, Any]:
    """Plain values; seconds. utilisation: device-seconds held over those there were until the last end."""
    jcts = {job.name: run.ends_s[job.name] - job.submit_s for job in workload.jobs}
    times = sorted(jcts.values())
    first, last = workload.jobs[0].submit_s, max(run.ends_s.values())
    devices = sum(group.count * group.devices for group in nodes)
    return {
        "jobs": len(times),
        "left_out": dict(workload.left_out),
        "avg_jct_s": fmean(times),
        "median_jct_s": median(times),
        "p90_jct_s": percentile(times, 0.90),
        "p99_jct_s": percentile(times, 0.99),
        "makespan_s": last - first,
        "restarts_per_job": sum(count - 1 for count in run.starts.values()) / len(times),
        "utilisation": held_gpu_s(run) / (devices * (last - first)) if last > first else 0.0,
        "pass_ms": {"mean": 1e3 * fmean(run.pass_s), "p99": 1e3 * percentile(sorted(run.pass_s), 0.99)},
        "lower_bound_s": lower_bound_s(workload, nodes),
        "jcts_s": jcts,
    }


def percentile(ascending: list[float], share: float) -> float:
    """The nearest rank."""
    return ascending[min(len(ascending) - 1, math.ceil(share * len(ascending)) - 1)]


def held_gpu_s(run: Run) -> float:
    """Device-seconds that jobs held, from their first grant to their end."""
    total = 0.0
    open_: dict[str, tuple[float, int]] = {}
    for change in run.changes:
        since, held = open_.get(change.job, (change.time_s, 0))
        total += held * (change.time_s - since)
        open_[change.job] = (change.time_s, sum(change.placement.values()))
    return total + sum(held * (run.ends_s[job] - since) for job, (since, held) in open_.items())


def lower_bound_s(workload: Workload, nodes: list[Nodes]) -> float:
    """No average can be less: the larger of every job alone on the empty cluster, and squashed-area SRPT, where
    device-seconds of the cheapest rows flow at the cluster's full rate to the job with least of them left."""
    devices = sum(group.count * group.devices for group in nodes)
    alone = fmean(_alone_s(job, workload.menus[job.application], devices) for job in workload.jobs)
    return max(alone, _squashed_s(workload, devices))


def _alone_s(job: SimulatedJob, menu: MeasuredMenu, devices: int) -> float:
    return min(row.restart_s + job.steps * row.step_time_s for row in menu.rows if row.devices <= devices)


def _squashed_s(workload: Workload, devices: int) -> float:
    """SRPT on one machine of the cluster's speed; a job's size is its least device-seconds, its restart included."""
    left: dict[str, float] = {}
    total, now = 0.0, 0.0
    arrivals = [*((job.submit_s, job) for job in workload.jobs), (math.inf, None)]
    submitted = {job.name: job.submit_s for job in workload.jobs}
    for moment, job in arrivals:
        while left and now < moment:
            name = min(left, key=lambda name: (left[name], name))
            taken = min(left[name] / devices, moment - now)
            now += taken
            left[name] -= taken * devices
            if left[name] <= 1e-6 * devices:
                del left[name]
                total += now - submitted[name]
        if job is not None:
            now = moment
            rows = workload.menus[job.application].rows
            left[job.name] = min(row.devices * (row.restart_s + job.steps * row.step_time_s) for row in rows)
    return total / len(workload.jobs)
