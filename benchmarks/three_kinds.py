"""Three GPU kinds with the Gavel rates: `python -m benchmarks.three_kinds RATES.csv [--seeds 3] [--rates known]`.

Jobs draw a model and a size of work; each may run on GPUs of one kind, in the scales that Gavel measured. RATES is
`simulation_throughputs_isolated.csv` (stanford-futuredata/gavel, MIT): gpu_type, job, scale_factor, steps_per_s. With
`--rates estimated` policies see only what jobs have shown so far, and estimates of the rest.
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path

from policies.model.cluster import MeasuredMenu, MeasuredRow
from policies.registry import find
from scheduler.simulator.estimating import Estimating
from scheduler.simulator.simulate import Simulation
from scheduler.simulator.summary import summarise
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload, named_plan

RESTART_S = 60.0
NODES = [Nodes(3, 4, "v100"), Nodes(3, 4, "p100"), Nodes(3, 4, "k80")]


def menus(rates: Path) -> dict[str, MeasuredMenu]:
    rows: dict[str, list[MeasuredRow]] = defaultdict(list)
    with rates.open(newline="") as file:
        for row in csv.DictReader(file):
            scale, speed = int(row["scale_factor"]), float(row["steps_per_s"])
            if speed > 0 and row["gpu_type"] in {"v100", "p100", "k80"}:
                shape = (scale,) if scale <= 4 else (4,) * (scale // 4)
                plan = named_plan("dp", scale)
                rows[row["job"]].append(MeasuredRow(row["gpu_type"], shape, scale, plan, 1 / speed, RESTART_S))
    return {name: MeasuredMenu(tuple(found)) for name, found in sorted(rows.items())}


def workload(found: dict[str, MeasuredMenu], seed: int, count: int = 160) -> Workload:
    """Philly-like: hours of work on one V100 from a heavy-tailed law; arrivals over about ten hours."""
    chance = random.Random(seed)
    at, jobs = 0.0, []
    for number in range(count):
        name = chance.choice(list(found))
        alone = [row.step_time_s for row in found[name].rows if row.devices == 1 and row.kind == "v100"]
        at += chance.expovariate(1 / 220)
        seconds = min(60_000.0, 300 * chance.paretovariate(0.65))
        size = chance.choice((1, 1, 1, 2, 4))
        if alone:
            jobs.append(SimulatedJob(f"job-{number}", at, name, seconds / alone[0], size))
    return Workload(tuple(jobs), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, metavar="RATES")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policies", default="jct,goodput,las")
    parser.add_argument("--rates", choices=("known", "estimated"), default="known")
    parser.add_argument("--remaining", default="exact,unknown")
    asked = parser.parse_args()
    found = menus(asked.table)
    for seed in range(asked.seeds):
        jobs = workload(found, seed)
        for name in asked.policies.split(","):
            for known in asked.remaining.split(","):
                policy = Estimating(find(name)) if asked.rates == "estimated" else find(name)
                run = Simulation(jobs, NODES, policy, 60.0, exact=known == "exact").play()
                told = summarise(jobs, NODES, run)
                print(
                    f"seed {seed} {name:8s} remaining {known:8s} avg {told['avg_jct_s']:8.0f} "
                    f"p99 {told['p99_jct_s']:8.0f} restarts {told['restarts_per_job']:.2f} "
                    f"in use {told['utilisation']:.0%} pass ms {told['pass_ms']['mean']:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
