"""How often the end of a job lies in the 90% range that it was told when it was submitted.

    python -m benchmarks.eta_coverage [--every 8] [--futures 5] [rubick|philly]

A workload is simulated under `jct`; when one of every `--every` jobs has been submitted, the core's state is forked and
run ahead, and the job's range is kept beside its true end. The forecast does not see later arrivals: it draws its own
from earlier ones. Ranges are as wide as those of jobs that have ended by then demand. Unknown counts as a miss.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from policies.jct.policy import Policy
from policies.registry import find
from scheduler.core.settings import us
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate, Pace, run_ahead
from scheduler.forecast.outlook import Outlook, Scores, look, score
from scheduler.simulator.simulate import Nodes, Simulation
from scheduler.simulator.workload import Workload, read_workload

DATA = Path(__file__).parent / "data"
PACE = Pace(round_s=60.0, periodic_s=300.0, passes=200)


class Asking(Simulation):
    """Asks for the end of some jobs in the round after their submission. told: outlooks by job name."""

    def __init__(self, workload: Workload, nodes: list[Nodes], every: int, futures: int) -> None:
        super().__init__(workload, nodes, find("jct"), 60.0)
        self.told: dict[str, tuple[float, Outlook]] = {}
        self._ask = {job.name for job in workload.jobs[every // 2 :: every]}
        self._futures = futures
        self._imagining: Policy = find("jct")

    def _round(self) -> None:
        super()._round()
        asked = {id: name for id, name in self.live.items() if name in self._ask and name not in self.told}
        if asked:
            print(f"  {len(self.told)} of {len(self._ask)} asked", file=sys.stderr, flush=True)
            outlooks = self._look()
            self.told.update({name: (self.now / 1e6, outlooks[id]) for id, name in asked.items()})

    def _look(self) -> dict[int, Outlook]:
        data = forks.encode(forks.take(self.state, self.now))
        futures: list[list[Fate]] = [
            run_ahead(forks.decode(data), self._imagining, seed, PACE, lambda: False, keeps_all=True)
            for seed in range(self._futures)
        ]
        return look(futures, self.now, Scores.of(self._scores()))

    def _scores(self) -> list[float]:
        """Of jobs that have ended by now."""
        ended = [
            (self.run.ends_s[name], seen) for name, (_, seen) in self.told.items()
            if name in self.run.ends_s and seen.end is not None
        ]  # fmt: skip
        ended.sort(key=lambda pair: pair[0])
        return [
            score(seen.made_us, seen.end.mid_us, seen.end.spread, us(end_s)) for end_s, seen in ended if seen.end
        ]


def philly(path: Path, jobs: int, shrink: float) -> Workload:
    """A stretch of the trace: its densest jobs in a row, time shrunk so that a small cluster is as busy."""
    read = read_workload(path, None, {"gpu": 64}, 260.0, 8)
    fits = [job for job in read.jobs if job.asked <= 64][1_000 : 1_000 + jobs]
    first = fits[0].submit_s
    return Workload(
        tuple(replace(job, submit_s=(job.submit_s - first) * shrink) for job in fits), read.menus
    )


def report(name: str, asking: Asking) -> dict[str, float]:
    outcomes = {"inside": 0, "before": 0, "after": 0, "unknown": 0}
    widths: list[float] = []
    submitted = {job.name: job.submit_s for job in asking.workload.jobs}
    for job, (_, seen) in asking.told.items():
        end_us = us(asking.run.ends_s[job])
        if seen.end is None:
            outcomes["unknown"] += 1
            continue
        inside = seen.end.low_us <= end_us <= seen.end.high_us
        outcomes["inside" if inside else "before" if end_us < seen.end.low_us else "after"] += 1
        widths.append((seen.end.high_us - seen.end.low_us) / 1e6 / (asking.run.ends_s[job] - submitted[job]))
    asked = len(asking.told)
    found = {"asked": asked, "coverage": outcomes["inside"] / asked, "median_width": median(widths), **outcomes}
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"{name}: {found['coverage']:.1%} of {asked} ends in their 90% range ({counts}); "
          f"median width {found['median_width']:.2f} of the true wait", flush=True)  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", default=["rubick", "philly"])
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--futures", type=int, default=5)
    parser.add_argument("--philly", type=Path, help="philly_multigpu.csv; its jobs are not among these files")
    parser.add_argument("--jobs", type=int, default=400, help="of Philly's")
    parser.add_argument("--shrink", type=float, default=0.5, help="Philly's intervals are made so many times as long")
    options = parser.parse_args()
    nodes = [Nodes(8, 8)]
    for name in options.workloads:
        begun = time.monotonic()
        if name == "rubick":
            folder = DATA / "rubick"
            workload = read_workload(folder / "workload-base.csv", folder, {"gpu": 64}, 260.0, 8)
        else:
            workload = philly(options.philly, options.jobs, options.shrink)
        asking = Asking(workload, nodes, options.every, options.futures)
        asking.play()
        report(name, asking)
        print(f"  {time.monotonic() - begun:.0f} s of computing", flush=True)


if __name__ == "__main__":
    main()
