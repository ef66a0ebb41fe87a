"""How good a way to predict is on situations that it has not seen, beside the mean and a ridge regression."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from agent.forest.model import Model
from agent.forest.rows import Rows, folds
from agent.forest.trees import Floats

SPLITS = ("kinds", "batch", "both", "random")
FOLDS = 5
RIDGE = 1.0


class Figures(msgspec.Struct, frozen=True):
    """mape: mean of |predicted - true| / true, in percent; r2: of the slowdowns."""

    mape: float
    r2: float


class Evaluation(msgspec.Struct, frozen=True):
    """Over all rows, each predicted by what was trained without its fold. split: what a fold holds out: all situations
    with certain kinds of interference, or batch sizes, or both; random rows only show how much easier that would be.
    coverage: percent of the truths inside the 90% interval."""

    split: str
    rows: int
    folds: int
    forest: Figures
    mean: Figures
    ridge: Figures
    coverage: float
    median_error: float


def evaluate(rows: Rows, split: str, train: Callable[[Rows], Model], seed: int = 0) -> Evaluation:
    """split: one of SPLITS."""
    truth = rows.slowdowns
    found = {name: np.zeros(len(rows)) for name in ("forest", "mean", "ridge", "low", "high")}
    count = 0
    for out in _held_out(rows, split, seed):
        count += 1
        part, rest = rows[out], rows[~out]
        model = train(rest)
        predictions = [model.predict(dict(zip(rows.schema.names, row, strict=True))) for row in part.features]
        found["forest"][out] = [one.slowdown for one in predictions]
        found["low"][out] = [one.low for one in predictions]
        found["high"][out] = [one.high for one in predictions]
        found["mean"][out] = rest.slowdowns.mean()
        found["ridge"][out] = ridge(rest, part.features)
    inside = (found["low"] <= truth + 1e-9) & (truth <= found["high"] + 1e-9)
    errors = np.abs(found["forest"] - truth) / truth
    return Evaluation(
        split=split, rows=len(rows), folds=count, coverage=100 * float(inside.mean()),
        median_error=100 * float(np.median(errors)),
        forest=figures(truth, found["forest"]), mean=figures(truth, found["mean"]),
        ridge=figures(truth, found["ridge"]),
    )  # fmt: skip


def figures(truth: Floats, predicted: Floats) -> Figures:
    spread = float(((truth - truth.mean()) ** 2).sum())
    missed = float(((truth - predicted) ** 2).sum())
    mape = 100 * float((np.abs(predicted - truth) / truth).mean())
    return Figures(mape=mape, r2=1.0 - missed / spread if spread > 0 else 0.0)


def ridge(rows: Rows, features: Floats) -> Floats:
    """Slowdowns by a linear model of standardised features, on the logarithm as the forest; at least 1, at most the
    largest it was shown, so that it is not blamed for extrapolating without bounds."""
    known = ~np.isnan(rows.features)
    count = np.maximum(1, known.sum(axis=0))
    middle = np.where(known, rows.features, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (rows.features - middle) ** 2, 0.0).sum(axis=0) / count)
    scale = np.where(spread > 1e-9, spread, 1.0)

    def standard(found: Floats) -> Floats:
        return np.where(np.isnan(found), 0.0, (found - middle) / scale)

    x, targets = standard(rows.features), np.log(rows.slowdowns)
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (targets - targets.mean()))
    predicted = np.exp(np.clip(standard(features) @ weights + targets.mean(), 0.0, targets.max()))
    return np.asarray(predicted, dtype=np.float64)


def _held_out(rows: Rows, split: str, seed: int) -> Iterator[np.ndarray]:
    """Masks of the rows of each fold."""
    groups = np.arange(len(rows)) if split == "random" else rows.groups(split)
    return folds(groups, FOLDS, seed)
