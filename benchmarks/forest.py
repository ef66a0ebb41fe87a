"""How well the forest predicts, on DynPipe's published measurements or on rows that `jct-agent calibrate` has kept.

`python -m benchmarks.forest FILE [--json]`, FILE: interference-sample.jsonl or rows.npz. Whole batch sizes (and kinds
of interference, where they are known) are held out; a random split stands beside it, as it is what others report. Also
how long one prediction takes: p50 under 0.2 ms.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from agent.forest.evaluation import Evaluation, evaluate
from agent.forest.model import Hardware, Model
from agent.forest.rows import Rows, Situation, collect, load
from agent.forest.schema import DYNPIPE
from agent.forest.training import train

CALLS = 2000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = load(options.file) if options.file.suffix == ".npz" else read_dynpipe(options.file)
    splits = ["batch", "random"] if rows.schema is DYNPIPE else ["kinds", "batch", "both", "random"]
    evaluations = [evaluate(rows, split, train) for split in splits]
    model = train(rows)
    p50_s = predict_s(model, dict(zip(rows.schema.names, rows.features[0], strict=True)))
    if options.json:
        print(json.dumps({"evaluations": msgspec.to_builtins(evaluations), "predict_p50_s": p50_s}))
        return
    print(f"{len(rows)} rows, slowdowns {rows.slowdowns.min():.2f} to {rows.slowdowns.max():.2f}; errors are MAPE")
    for found in evaluations:
        print(line(found))
    print(f"one prediction of {len(model.trees.roots)} trees: p50 {1e3 * p50_s:.3f} ms")


def read_dynpipe(path: Path) -> Rows:
    """One network at four batch sizes: the multiply-adds tell them apart. Which interference a row had is not said."""
    measured = [json.loads(text) for text in path.read_text().splitlines()]
    least = min(row["output"]["mac"] for row in measured)
    found = []
    for row in measured:
        values = {name: float(value) for name, value in {**row["profile"], **row["output"]}.items()}
        found.append((values, values["time"], Situation("unknown", round(values["mac"] / least))))
    return collect(DYNPIPE, Hardware("unknown GPU"), found)


def predict_s(model: Model, values: Mapping[str, float]) -> float:
    """Median seconds of one prediction of one row."""
    took = []
    for _ in range(CALLS):
        began = time.perf_counter()
        model.predict(values)
        took.append(time.perf_counter() - began)
    return float(np.median(took))


def line(found: Evaluation) -> str:
    errors = ", ".join(f"{name} {getattr(found, name).mape:.1f}%" for name in ("forest", "mean", "ridge"))
    return (
        f"{found.split:<7} held out in {found.folds} parts: {errors}; "
        f"R2 {found.forest.r2:.2f}; 90% intervals hold {found.coverage:.0f}%"
    )


if __name__ == "__main__":
    main()
