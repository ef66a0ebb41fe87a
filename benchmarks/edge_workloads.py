"""Where gains must vanish or hold: overload, one job, rigid jobs, loads from half to double, wrong estimates.

    python -m benchmarks.edge_workloads [edges|loads|mixes|errors] [--jobs 406]

All on the Rubick workload (`benchmarks/data/rubick`), 8 nodes x 8 GPUs, rounds of 60 s, restarts of 260 s. edges: `jct`
over `srtf`, average JCT, at most 1.03. loads: arrivals twice as slow to twice as fast. mixes: some of the jobs on
exactly the GPUs that were asked for. errors: remaining work and step times off by 10, 30 and 100%, beside `las`, which
uses neither.
"""

import argparse
import random
from dataclasses import replace
from pathlib import Path

from policies.model.cluster import MeasuredMenu
from policies.registry import find
from scheduler.simulator.noise import Misinformed
from scheduler.simulator.simulate import Simulation
from scheduler.simulator.summary import summarise
from scheduler.simulator.workload import Nodes, Workload, read_workload, rigid

DATA = Path(__file__).parent / "data" / "rubick"
NODES = [Nodes(8, 8)]
RESTART_S = 260.0


def average_s(workload: Workload, policy: str, error: float = 0.0) -> float:
    chosen = find(policy)
    misled = Misinformed(chosen, error, random.Random(0)) if error else chosen
    run = Simulation(workload, NODES, misled, 60.0).play()
    return float(summarise(workload, NODES, run)["avg_jct_s"])


def at_load(workload: Workload, load: float) -> Workload:
    """The same jobs, coming so many times as fast."""
    return replace(workload, jobs=tuple(replace(job, submit_s=job.submit_s / load) for job in workload.jobs))


def all_rigid(workload: Workload) -> Workload:
    """Every job on exactly the GPUs that its user asked for, as long as its best row of that size says."""
    jobs, menus = [], dict[str, MeasuredMenu]()
    for job in workload.jobs:
        rows = workload.menus[job.application].rows
        best = min(rows, key=lambda row: (abs(row.devices - job.asked), row.step_time_s))
        name = f"rigid-{best.devices}"
        menus[name] = rigid(best.devices, NODES, RESTART_S)
        jobs.append(replace(job, application=name, asked=best.devices, steps=job.steps * best.step_time_s))
    return Workload(tuple(jobs), menus)


def edges(whole: Workload) -> None:
    cases = {
        "one job": replace(whole, jobs=whole.jobs[:1]),
        "all rigid": all_rigid(whole),
        "all rigid, all at once": at_load(all_rigid(whole), 1e6),
        "overload: all at once": at_load(whole, 1e6),
        "overload: 4x": at_load(whole, 4.0),
    }
    for name, workload in cases.items():
        ours, srtf = average_s(workload, "jct"), average_s(workload, "srtf")
        print(f"{name:24s} jct {ours:9,.0f} s  srtf {srtf:9,.0f} s  ratio {ours / srtf:.3f}", flush=True)


def loads(whole: Workload) -> None:
    for load in (0.5, 0.75, 1.0, 1.5, 2.0):
        workload = at_load(whole, load)
        ours, srtf = average_s(workload, "jct"), average_s(workload, "srtf")
        print(f"load {load:4.2f}  jct {ours:9,.0f} s  srtf {srtf:9,.0f} s  ratio {ours / srtf:.3f}", flush=True)


def mixes(whole: Workload) -> None:
    fixed = all_rigid(whole)
    for share in (0.5, 0.7, 0.9, 1.0):
        dice = random.Random(0)
        jobs = tuple(b if dice.random() < share else a for a, b in zip(whole.jobs, fixed.jobs, strict=True))
        mixed = Workload(jobs, {**whole.menus, **fixed.menus})
        for load in (0.6, 1.0, 1.5):
            workload = at_load(mixed, load)
            ratio = average_s(workload, "jct") / average_s(workload, "srtf")
            print(f"rigid {share:4.0%}, load {load:4.2f}  ratio {ratio:.3f}", flush=True)


def errors(whole: Workload) -> None:
    print(f"las {average_s(whole, 'las'):9,.0f} s", flush=True)
    for error in (0.0, 0.1, 0.3, 1.0):
        print(f"error {error:4.0%}  jct {average_s(whole, 'jct', error):9,.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("edges", "loads", "mixes", "errors"), nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=406)
    asked = parser.parse_args()
    whole = read_workload(DATA / "workload-base.csv", DATA, NODES, RESTART_S)
    whole = replace(whole, jobs=whole.jobs[: asked.jobs])
    for part in asked.part or ("edges", "loads", "mixes", "errors"):
        {"edges": edges, "loads": loads, "mixes": mixes, "errors": errors}[part](whole)


if __name__ == "__main__":
    main()
