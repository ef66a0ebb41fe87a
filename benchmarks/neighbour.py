"""A CPU-bound neighbour on one of two cores, each with a stage: noticed by counters alone, and predicted how well?

`python -m benchmarks.neighbour [--model FILE] [--rounds N] [--json]`. Each round: alone, a neighbour on one of the
cores, alone. Nobody tells the predictor of it. Compared are ratios within one run, as others use this machine as well:
the pipeline's step time beside the neighbour over that before and after, and the larger of the two devices' predicted
slowdowns beside it over that before and after, both over the 2.5 s over which an agent smooths. Claim: the median error
is at most 15%.
"""

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.forest import file
from agent.forest.campaign import Bench, Moment
from agent.forest.contested import SMOOTHED
from agent.forest.felt import felt
from agent.forest.model import Model
from agent.forest.predictor import SHIPPED
from agent.forest.workbench import Disturbance, Pipeline, disturbed, pipeline
from agent.telemetry.sampler import EVERY_S

BATCH, ALONE_S, BESIDE_S = 64, 4.0, 8.0
SETTLE = 3
"""Samples after a change that are not counted: moving averages still have the time before in them."""


@dataclass(frozen=True)
class Found:
    """A stretch of 2.5 s beside a neighbour. right: the device with the larger slowdown is the one that it is on."""

    predicted: float
    true: float
    right: bool

    @property
    def error(self) -> float:
        return abs(self.predicted - self.true) / self.true


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=SHIPPED / "cpu.npz")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = file.read(options.model, owners=(options.model.stat().st_uid,))
    found = measure(model, sorted(os.sched_getaffinity(0))[:2], options.rounds)
    figures = {
        "stretches": len(found), "true_median": statistics.median(one.true for one in found),
        "predicted_median": statistics.median(one.predicted for one in found),
        "median_error_percent": 100 * statistics.median(one.error for one in found),
        "right_device_percent": 100 * statistics.fmean(one.right for one in found),
        "load": os.getloadavg()[0],
    }  # fmt: skip
    lines = "\n".join(f"{name:<22}{value:8.2f}" for name, value in figures.items())
    print(json.dumps(figures) if options.json else lines)


def measure(model: Model, cores: Sequence[int], rounds: int) -> list[Found]:
    """Rounds on the cores in turn."""
    bench, found = Bench(cores), []
    with pipeline(cores, BATCH) as job:
        for number in range(rounds):
            stage = number % 2
            neighbour = (Disturbance("compute", 1.0, cores[stage]),)
            alone = list(bench.watch(job, BATCH, ALONE_S))[SETTLE:]
            with disturbed(neighbour):
                beside = list(bench.watch(job, BATCH, BESIDE_S, neighbour))[SETTLE:]
            alone += list(bench.watch(job, BATCH, ALONE_S))[SETTLE:]
            found += compare(model, job, alone, beside, stage)
    return found


def compare(model: Model, job: Pipeline, alone: list[Moment], beside: list[Moment], stage: int) -> list[Found]:
    free_s = statistics.fmean(step_s(job, moment) for moment in alone)
    calm = statistics.median(max(predicted(model, moment)) for moment in alone)
    found = []
    for first in range(0, len(beside) - SMOOTHED + 1, SMOOTHED):
        stretch = beside[first : first + SMOOTHED]
        said = zip(*(predicted(model, one) for one in stretch), strict=True)
        devices = [statistics.median(ratios) for ratios in said]
        true = statistics.fmean(step_s(job, moment) for moment in stretch) / free_s
        found.append(Found(max(devices) / calm, true, devices[stage] == max(devices)))
    return found


def step_s(job: Pipeline, moment: Moment) -> float:
    """Mean step time of the last stage around a sample."""
    steps, passed_s = 0.0, 0.0
    for step in job.steps:
        part = min(step.end_s, moment.at_s) - max(step.end_s - step.step_s, moment.at_s - EVERY_S)
        if step.stage == 1 and part > 0:
            steps, passed_s = steps + part / step.step_s, passed_s + part
    return passed_s / steps


def predicted(model: Model, moment: Moment) -> list[float]:
    return [felt(model.predict(values, model.hardware).slowdown, values) for values in moment.values]


if __name__ == "__main__":
    main()
