"""From rows to a model, with scikit-learn: in a process of its own, so that no agent ever holds it in memory.

`python -m agent.forest.training ROWS.npz MODEL.npz [--evaluate]` prints one JSON object: `Trained`.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agent.forest import file
from agent.forest.evaluation import SPLITS, Evaluation, evaluate
from agent.forest.model import Model, conformal_quantile, score
from agent.forest.rows import Rows, folds, load
from agent.forest.trees import Floats, Trees

TREES, LEAF, DEPTH = 100, 5, 14
LEVEL = 0.9
FOLDS = 5
LEAST_ROWS = 20


class TooFewRows(ValueError):
    """There is not enough to learn from."""


class Trained(msgspec.Struct, frozen=True):
    """importances: by feature, the largest first, sum 1."""

    rows: int
    situations: int
    importances: dict[str, float]
    evaluations: tuple[Evaluation, ...] = ()


def train(rows: Rows, seed: int = 0, trees: int = TREES) -> Model:
    """The interval's width comes from situations that were held out: certain kinds of interference, then certain batch
    sizes, each in turn. Raises TooFewRows."""
    if len(rows) < LEAST_ROWS:
        raise TooFewRows(f"{len(rows)} rows; at least {LEAST_ROWS} are needed")
    medians = _medians(rows.features)
    filled, targets = _fill(rows.features, medians), np.log(rows.slowdowns)
    scores = [
        score(targets[out], *_fit(filled[~out], targets[~out], seed, trees)[0].predict(filled[out]))
        for of in ("kinds", "batch")
        for out in folds(rows.groups(of), FOLDS, seed)
    ]
    forest, importances = _fit(filled, targets, seed, trees)
    return Model(
        schema=rows.schema, hardware=rows.hardware, trees=forest, importances=importances, medians=medians,
        lows=filled.min(axis=0), highs=filled.max(axis=0),
        quantile=max(1e-3, conformal_quantile(np.concatenate(scores), LEVEL)), about=_about(rows),
    )  # fmt: skip


def _medians(features: Floats) -> Floats:
    """Of each feature, 0 where no row has it: then no tree asks for it either."""
    known = ~np.isnan(features)
    columns = zip(features.T, known.T, strict=True)
    return np.array([np.median(column[here]) if here.any() else 0.0 for column, here in columns])


def _fill(features: Floats, medians: Floats) -> Floats:
    return np.where(np.isnan(features), medians, features)


def _fit(filled: Floats, targets: Floats, seed: int, trees: int) -> tuple[Trees, Floats]:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        n_estimators=trees, min_samples_leaf=LEAF, max_depth=DEPTH, max_features=0.5, random_state=seed, n_jobs=1
    ).fit(filled, targets)
    return flatten(forest), np.asarray(forest.feature_importances_, dtype=np.float64)


def flatten(forest: Any) -> Trees:
    """Of a fitted RandomForestRegressor with one output."""
    trees = [estimator.tree_ for estimator in forest.estimators_]
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
    parts = [_flat(tree, start) for tree, start in zip(trees, starts, strict=True)]
    feature, threshold, children, value = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    depth = max(tree.max_depth for tree in trees)
    return Trees(feature, threshold, children, value, starts.astype(np.int32), max(1, depth))


def _flat(tree: Any, start: int) -> tuple[np.ndarray, ...]:
    """One tree's nodes, numbered from `start` on. A leaf leads to itself."""
    leaf = tree.children_left < 0
    own = np.arange(tree.node_count)
    children = np.stack([np.where(leaf, own, side) for side in (tree.children_left, tree.children_right)], axis=1)
    feature = np.where(leaf, 0, tree.feature).astype(np.int32)
    threshold = np.where(leaf, 0.0, tree.threshold).astype(np.float64)
    return feature, threshold, (children + start).astype(np.int32), tree.value[:, 0, 0].astype(np.float64)


def _about(rows: Rows) -> dict[str, str]:
    import sklearn

    return {"rows": str(len(rows)), "scikit-learn": sklearn.__version__, "numpy": np.__version__}


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 with a line on standard error where the rows are none, or too few."""
    parser = argparse.ArgumentParser(prog="python -m agent.forest.training", description="Trains a model.")
    parser.add_argument("rows", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--evaluate", action="store_true", help="also on held-out situations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--nice", type=int, default=0, help="how much to give way to others")
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    try:
        rows = load(options.rows)
        model = train(rows, options.seed, options.trees)
        splits = SPLITS if options.evaluate else ()
        found = tuple(evaluate(rows, split, lambda part: train(part, options.seed, options.trees)) for split in splits)
        file.write(options.model, model)
    except (ValueError, OSError, KeyError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 1
    ranked = sorted(zip(rows.schema.names, model.importances, strict=True), key=lambda pair: -pair[1])
    situations = len(set(rows.groups("both").tolist()))
    done = Trained(len(rows), situations, {name: float(share) for name, share in ranked}, found)
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
