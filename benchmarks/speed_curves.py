"""Speed curves from five rows: `python -m benchmarks.speed_curves [FOLDER] [--seeds 20] [--rows 5] [--json] [--prior]`.

For every model of the Rubick placements with at least 30 measured rows, 20 times: fit on 5 random rows, predict the
rest; the median relative error. The prior is made of the *other* models only. --prior prints the one of all models, as
`policies/jct/speed.py` has it. --floor tells what the form and the noise allow: the error of a curve through all rows
of a model, and how far one plan's times on each placement are from being a multiple of another's.

Priors are fitted by expectation maximisation: parameters of each model given the prior, then mean and spread over
models, held together by a vague first guess that counts as half a model for the means and as one for the spreads.
"""

import argparse
import csv
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from policies.jct.speed import Prior, SpeedCurve, Way, fit, log_step_time

DATA = Path(__file__).parent / "data" / "rubick"
FEWEST, SAMPLE, ROUNDS = 30, 5, 6
Rows = list[tuple[Way, float]]

GUESS = {
    "scale": (0.0, 3.0), "network": (-1.0, 1.0), "local": (-2.0, 1.0), "cards": (0.25, 0.1), "uneven": (0.3, 0.8),
    "single": (0.5, 0.4), "nodes": (0.1, 0.2), "fixed": (-2.5, 1.0),
    "recompute.compute": (0.3, 0.2), "recompute.network": (0.0, 0.2), "recompute.fixed": (0.0, 0.2),
    "sharded.compute": (0.0, 0.2), "sharded.network": (0.0, 0.3), "sharded.fixed": (0.0, 0.2),
    "offload.compute": (0.5, 0.4), "offload.network": (0.0, 0.5), "offload.fixed": (1.0, 0.7),
    "offload.uneven": (-2.0, 1.0),
    "tensor": (1.0, 0.7), "ways": (0.85, 0.1), "stages": (0.12, 0.05), "tensor.fixed": (-3.0, 0.7),
    "gradients": (0.0, 0.7), "gradients.cards": (1.0, 0.15), "gradients.local": (-2.0, 0.7),
}  # fmt: skip
"""Mean and spread of each parameter before anything was measured."""
FAMILY = {"ga": "plain", "gc": "recompute", "zero-dp": "sharded", "zero-offload": "offload"}


def read(file: Path) -> Rows:
    """Measured rows of plans that the model knows: ga, gc, zero-dp, zero-offload, and PP, TP, DP as three digits."""
    rows: Rows = []
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            plan, seconds = row["exec_plan"], float(row["iter_time"] or 0)
            per_node = tuple(map(int, row["placement"]))
            if seconds <= 0:
                continue
            if plan in FAMILY:
                rows.append((Way(per_node, FAMILY[plan]), seconds))
            elif plan.isdigit():
                stages, tensor, _ = map(int, plan)
                rows.append((Way(per_node, "tensor", tensor, stages), seconds))
    return rows


def prior_of(models: Sequence[Rows]) -> Prior:
    """What these models have in common."""
    names = list(GUESS)
    first = np.array([GUESS[name] for name in names])
    mean, spread, noise = first[:, 0], first[:, 1], [0.1] * len(models)
    for _ in range(ROUNDS):
        found, doubt, seen = [], [], []
        for number, rows in enumerate(models):
            prior = Prior(_named(mean), _named(spread), noise[number])
            curve = fit(rows, prior)
            slopes = _slopes(curve, rows)
            inverse = np.linalg.inv(slopes.T @ slopes / noise[number] ** 2 + np.diag(spread**-2.0))
            misfit = np.array([math.log(s) - log_step_time(curve.parameters, way) for way, s in rows])
            variance = (misfit @ misfit + np.trace(slopes @ inverse @ slopes.T)) / len(rows)
            noise[number] = max(0.03, math.sqrt(variance))
            found.append([curve.parameters[name] for name in names])
            doubt.append(np.diag(inverse))
            seen.append(np.abs(slopes).max(0) > 1e-3)
        values, counts = np.array(found), np.array(seen, float)
        mean = ((values * counts).sum(0) + 0.5 * first[:, 0]) / (counts.sum(0) + 0.5)
        squares = (((values - mean) ** 2 + np.array(doubt)) * counts).sum(0)
        spread = np.sqrt((squares + first[:, 1] ** 2) / (counts.sum(0) + 1.0))
        spread[names.index("scale")] = GUESS["scale"][1]
    return Prior(_named(mean), _named(spread), float(np.median(noise)))


def _named(values: Sequence[float]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(GUESS, values, strict=True)}


def _slopes(curve: SpeedCurve, rows: Rows) -> "np.ndarray":
    p, nudge = dict(curve.parameters), 1e-4
    return np.array([
        [(log_step_time({**p, name: p[name] + nudge}, way) - log_step_time(p, way)) / nudge for name in GUESS]
        for way, _ in rows
    ])  # fmt: skip


def errors(rows: Rows, prior: Prior, seeds: int, sample: int) -> list[float]:
    """Relative errors of all predictions."""
    found: list[float] = []
    for seed in range(seeds):
        chosen = random.Random(seed).sample(range(len(rows)), sample)
        curve = fit([rows[number] for number in chosen], prior)
        rest = (row for number, row in enumerate(rows) if number not in chosen)
        found += [abs(curve.step_time_s(way) / seconds - 1) for way, seconds in rest]
    return found


def through_all(rows: Rows, prior: Prior) -> float:
    """Median relative error of the curve through all rows, on these rows."""
    curve = fit(rows, prior)
    return median(abs(curve.step_time_s(way) / seconds - 1) for way, seconds in rows)


def repeated(rows: Rows) -> float:
    """Plain against recomputing plans on the same placements: median deviation of the logarithm of their ratio. A form
    without noise and without a term for each pair would have none."""
    plain, again = (
        {way.per_node: math.log(seconds) for way, seconds in rows if way.family == family}
        for family in ("plain", "recompute")
    )
    ratios = [again[place] - plain[place] for place in plain.keys() & again.keys()]
    return median(abs(ratio - median(ratios)) for ratio in ratios) if ratios else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=DATA)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=SAMPLE, help="to fit on")
    parser.add_argument("--floor", action="store_true", help="print what form and noise allow instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--prior", action="store_true", help="print the prior of all models instead")
    asked = parser.parse_args()
    files = sorted(asked.folder.glob("*-placements.csv"))
    models = {file.name.removesuffix("-placements.csv"): rows for file in files if len(rows := read(file)) >= SAMPLE}
    if asked.prior:
        prior = prior_of(list(models.values()))
        rounded = {name: (round(prior.mean[name], 2), round(prior.spread[name], 2)) for name in prior.mean}
        print(json.dumps({"noise": round(prior.noise, 2), "parameters": rounded}, indent=2))
        return
    told = {}
    for name, rows in models.items():
        if len(rows) < FEWEST:
            continue
        others = prior_of([found for other, found in models.items() if other != name])
        if asked.floor:
            through, pairs = through_all(rows, others), repeated(rows)
            print(f"{name:10s} {len(rows):4d} rows  through all {through:.1%}, pairs of plans {pairs:.1%}")
        else:
            found = errors(rows, others, asked.seeds, asked.rows)
            told[name] = {"rows": len(rows), "median_error": median(found)}
    if asked.json:
        print(json.dumps(told, indent=2))
    else:
        for name, said in told.items():
            print(f"{name:10s} {said['rows']:4d} rows  median error {said['median_error']:.1%}")


if __name__ == "__main__":
    main()
