"""A CPU-bound neighbour on one of two cores, each with a stage: noticed by counters alone, and predicted how well?

`python -m benchmarks.neighbour [--model FILE] [--rounds N] [--json]`. Rounds alternate: alone, a neighbour on one core,
alone, a neighbour on the other. Nobody tells the predictor of it. True: the pipeline's step time over that of the
rounds alone, in the same run. Predicted: the larger of the two devices' slowdowns. Claim: the median error is at most
15%.
"""

import argparse
import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from agent.forest import file
from agent.forest.campaign import Bench, Moment
from agent.forest.model import Model
from agent.forest.predictor import SHIPPED
from agent.forest.workbench import Disturbance, Pipeline, disturbed, pipeline
from agent.telemetry.sampler import EVERY_S

BATCH, ROUND_S = 64, 6.0
SETTLE = 3
"""Samples after a change that are not counted: moving averages still have the time before in them."""


@dataclass(frozen=True)
class Found:
    """One sample beside a neighbour. core: that it is on; blamed: whose slowdown was the larger."""

    core: int
    blamed: int
    predicted: float
    true: float

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
    cores = sorted(os.sched_getaffinity(0))[:2]
    found, calm = measure(model, cores, options.rounds)
    figures = {
        "samples": len(found), "true_median": statistics.median(one.true for one in found),
        "predicted_median": statistics.median(one.predicted for one in found),
        "median_error_percent": 100 * statistics.median(one.error for one in found),
        "right_core_percent": 100 * statistics.fmean(one.blamed == one.core for one in found),
        "calm_median": statistics.median(calm),
    }  # fmt: skip
    lines = "\n".join(f"{name:<22}{value:8.2f}" for name, value in figures.items())
    print(json.dumps(figures) if options.json else lines)


def measure(model: Model, cores: list[int], rounds: int) -> tuple[list[Found], list[float]]:
    """Samples beside a neighbour, and what was predicted without one."""
    bench = Bench(cores)
    beside: list[tuple[int, Moment]] = []
    alone: list[Moment] = []
    with pipeline(cores, BATCH) as job:
        for number in range(rounds):
            core = cores[number % 2]
            alone += list(bench.watch(job, BATCH, ROUND_S))[SETTLE:]
            neighbour = (Disturbance("compute", 1.0, core),)
            with disturbed(neighbour):
                beside += [(core, one) for one in list(bench.watch(job, BATCH, ROUND_S, neighbour))[SETTLE:]]
        free_s = statistics.median(step_s(job, moment) for moment in alone)
        found = [_found(model, cores, core, moment, step_s(job, moment) / free_s) for core, moment in beside]
        return found, [max(predicted(model, moment)) for moment in alone]


def step_s(job: Pipeline, moment: Moment) -> float:
    """Mean step time of the last stage around a sample, each step by the part of the period that it took."""
    weights, total = 0.0, 0.0
    for step in job.steps:
        part = min(step.end_s, moment.at_s) - max(step.end_s - step.step_s, moment.at_s - EVERY_S)
        if step.stage == 1 and part > 0:
            weights, total = weights + part, total + part * step.step_s
    return total / weights


def predicted(model: Model, moment: Moment) -> list[float]:
    return [model.predict(values, model.hardware).slowdown for values in moment.values]


def _found(model: Model, cores: list[int], core: int, moment: Moment, true: float) -> Found:
    said = predicted(model, moment)
    return Found(core, cores[said.index(max(said))], max(said), true)


if __name__ == "__main__":
    main()
