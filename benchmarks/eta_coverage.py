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

import msgspec

from policies.jct.policy import Policy
from policies.registry import find
from scheduler.core.settings import us
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate, Pace, run_ahead
from scheduler.forecast.outlook import Outlook, Scores, look, score
from scheduler.simulator.simulate import Run, Simulation
from scheduler.simulator.workload import Nodes, Workload, read_workload

DATA = Path(__file__).parent / "data"
PHILLY_NODES = 48
"""Of 8 GPUs: busy to about three quarters by that stretch of the trace."""

PACE = Pace(periodic_s=300.0, passes=200)


class Asking(Simulation):
    """Asks for the end of some jobs in the round after their submission. told: outlooks by job name."""

    def __init__(self, workload: Workload, nodes: list[Nodes], round_s: float, every: int, futures: int) -> None:
        super().__init__(workload, nodes, find("jct"), round_s)
        self._pace = msgspec.structs.replace(PACE, round_s=round_s)
        self.told: dict[str, tuple[float, Outlook]] = {}
        self._ask = {job.name for job in workload.jobs[every // 2 :: every]}
        self._futures = futures
        self._imagining: Policy = find("jct")

    def play(self) -> Run:
        """Until all that were asked about have ended."""
        while self._ask - self.run.ends_s.keys():
            if not self.live:
                self._advance(us(self._waiting[-1].submit_s))
            self._advance(self._next_round())
            self._round()
        return self.run

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
            run_ahead(forks.decode(data), self._imagining, seed, self._pace, lambda: False)
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


def philly(path: Path, first: int, jobs: int) -> Workload:
    """Jobs in a row of the trace, at its own pace."""
    read = read_workload(path, None, [Nodes(PHILLY_NODES, 8)], 260.0)
    chosen = read.jobs[first : first + jobs]
    return Workload(tuple(replace(job, submit_s=job.submit_s - chosen[0].submit_s) for job in chosen), read.menus)


def report(name: str, asking: Asking) -> dict[str, float]:
    outcomes = {"inside": 0, "before": 0, "after": 0, "unknown": 0}
    widths: list[float] = []
    submitted = {job.name: job.submit_s for job in asking.workload.jobs}
    for job, (_, seen) in asking.told.items():
        end_us = us(asking.run.ends_s[job])
        if seen.end is not None:
            off = score(seen.made_us, seen.end.mid_us, seen.end.spread, end_us)
            times = f"asked at {seen.made_us / 1e6:.0f} s, ended at {end_us / 1e6:.0f} s"
            print(f"  {job} {off:+.3f} deviations of {seen.end.spread:.3f}, {times}", file=sys.stderr)
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
    parser.add_argument("--first", type=int, default=3_000, help="of Philly's jobs")
    parser.add_argument("--jobs", type=int, default=240, help="of Philly's")
    options = parser.parse_args()
    for name in options.workloads:
        begun = time.monotonic()
        if name == "rubick":
            nodes = [Nodes(8, 8)]
            folder = DATA / "rubick"
            workload, round_s = read_workload(folder / "workload-base.csv", folder, nodes, 260.0), 60.0
        else:
            nodes = [Nodes(PHILLY_NODES, 8)]
            workload, round_s = philly(options.philly, options.first, options.jobs), 600.0
        asking = Asking(workload, nodes, round_s, options.every, options.futures)
        asking.play()
        report(name, asking)
        print(f"  {time.monotonic() - begun:.0f} s of computing", flush=True)


if __name__ == "__main__":
    main()
