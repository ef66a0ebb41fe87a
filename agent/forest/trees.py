"""A random forest as flat arrays: all trees are walked at once, one level a step, in numpy alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class BadTrees(ValueError):
    """The arrays are no forest."""


@dataclass(frozen=True)
class Trees:
    """Arrays over all nodes of all trees. feature, threshold: at most it goes left. children: (nodes, 2), behind their
    parent; a leaf's are itself. value: mean target of the training rows at the node. roots: of each tree."""

    feature: Ints
    threshold: Floats
    children: Ints
    value: Floats
    roots: Ints
    depth: int

    def leaves(self, rows: Floats) -> Ints:
        """(rows, trees): the leaf of each row in each tree. rows: (rows, features), without not-a-numbers."""
        at, flat, offset = self._begin(rows)
        for _ in range(self.depth):
            at = self._down(at, flat, offset)
        return at

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Of each row the mean over all trees, and how far they are apart (standard deviation)."""
        found = self.value[self.leaves(rows)]
        return found.mean(axis=1), found.std(axis=1)

    def contributions(self, row: Floats) -> Floats:
        """By how much each feature moves the prediction of one row away from the mean of all training rows, along the
        decision paths: https://arxiv.org/abs/1906.10845, section 2.1."""
        at, flat, offset = self._begin(row[None, :])
        moved = np.zeros(len(row))
        for _ in range(self.depth):
            below = self._down(at, flat, offset)
            np.add.at(moved, self.feature[at].ravel(), (self.value[below] - self.value[at]).ravel())
            at = below
        return moved / len(self.roots)

    def _begin(self, rows: Floats) -> tuple[Ints, Floats, NDArray[np.int64]]:
        count, features = rows.shape
        flat = rows.astype(np.float32).astype(np.float64).ravel()  # as scikit-learn compares
        at = np.broadcast_to(self.roots, (count, len(self.roots)))
        return at, flat, (np.arange(count) * features)[:, None]

    def _down(self, at: Ints, flat: Floats, offset: NDArray[np.int64]) -> Ints:
        right = flat[self.feature[at] + offset] > self.threshold[at]
        below: Ints = self.children.ravel()[2 * at + right]
        return below

    def check(self, features: int) -> None:
        """Raises BadTrees. What passes ends: children lie behind their parents."""
        nodes = self.feature.size
        shapes = (self.feature.shape, self.threshold.shape, self.value.shape, self.children.shape)
        if not nodes or shapes != ((nodes,), (nodes,), (nodes,), (nodes, 2)) or self.roots.ndim != 1:
            raise BadTrees("its arrays differ in length")
        inside = (self.children < nodes).all() and (self.roots >= 0).all() and (self.roots < nodes).all()
        own = np.arange(nodes, dtype=np.int32)
        leaf = (self.children == own[:, None]).all(axis=1)
        if not inside or not ((self.children > own[:, None]).all(axis=1) | leaf).all():
            raise BadTrees("a node's child is not behind it")
        if not ((self.feature >= 0) & (self.feature < features)).all():
            raise BadTrees(f"it asks for a feature beyond its {features}")
        if not (np.isfinite(self.value).all() and np.isfinite(self.threshold).all()):
            raise BadTrees("it has values that are no numbers")
        if np.abs(self.value).max() > MOST_VALUE:
            raise BadTrees(f"it predicts logarithms beyond {MOST_VALUE:g}")
        if not 0 < len(self.roots) <= MAX_TREES or not 0 < self.depth <= MAX_DEPTH:
            allowed = f"1 to {MAX_TREES} trees of 1 to {MAX_DEPTH} levels are allowed"
            raise BadTrees(f"it has {len(self.roots)} trees of depth {self.depth}; {allowed}")
        if np.ptp(self.value[leaf]) < 1e-9:
            raise BadTrees("it predicts the same for everything")


MAX_DEPTH, MAX_TREES = 64, 10_000
MOST_VALUE = 100.0
"""Of a logarithm: far beyond any slowdown, and within what can be raised to a power."""
