"""A forest with all that a prediction needs: what it is for, what stands in for nulls, how far it may be off."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from agent.forest.schema import Row, Schema
from agent.forest.trees import Floats, Trees

ANY = "any"
TOP = 5
LEAST_CONFIDENCE = 0.5
"""An agent does not follow a prediction of less."""
OTHER_KIND, OTHER_TOPOLOGY = 0.3, 0.8
_LEAST_SPREAD = 0.02


class Hardware(msgspec.Struct, frozen=True):
    """What a model was calibrated on. kind: of the devices; topology: how they hang together, ANY for a generic one."""

    kind: str
    topology: str = ANY


class Reason(msgspec.Struct, frozen=True):
    """A feature on the decision paths. factor: by how much it multiplies the slowdown."""

    feature: str
    value: float | None
    factor: float


class Prediction(msgspec.Struct, frozen=True):
    """slowdown: at least 1. low, high: hold the truth nine times in ten. confidence: 0 to 1. missing: features that
    were imputed; beyond: those outside of what was seen in training."""

    slowdown: float
    low: float
    high: float
    confidence: float
    missing: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """The trees predict the logarithm of the slowdown. importances: of each feature, sum 1. medians: of each feature in
    the training rows, what stands in for a null. lows, highs: the range seen there. quantile: of the conformal scores,
    |log truth - prediction| / (spread of the trees + LEAST_SPREAD), of situations that were held out.
    """

    schema: Schema
    hardware: Hardware
    trees: Trees
    importances: Floats
    medians: Floats
    lows: Floats
    highs: Floats
    quantile: float
    about: Mapping[str, str]

    def predict(self, values: Mapping[str, float | None], hardware: Hardware | None = None) -> Prediction:
        """hardware: of the device in question; None for the model's own."""
        row = self.schema.row(values)
        missing = np.isnan(row)
        filled = np.where(missing, self.medians, row)
        (middle,), (spread,) = self.trees.predict(filled[None, :])
        width = self.quantile * (spread + _LEAST_SPREAD)
        beyond = ~missing & self._beyond(filled)
        trust = 1.0 - float(self.importances @ (missing | beyond))
        return Prediction(
            slowdown=_ratio(middle), low=_ratio(middle - width), high=_ratio(middle + width),
            confidence=max(0.0, trust) * (self._fits(hardware) if hardware is not None else 1.0),
            missing=self._names(missing), beyond=self._names(beyond),
        )  # fmt: skip

    def reasons(self, values: Mapping[str, float | None], top: int = TOP) -> tuple[Reason, ...]:
        """The features that moved the prediction most along the decision paths."""
        row = self.schema.row(values)
        moved = self.trees.contributions(np.where(np.isnan(row), self.medians, row))
        order = np.argsort(-np.abs(moved), kind="stable")[:top]
        return tuple(
            Reason(self.schema.names[at], None if np.isnan(row[at]) else float(row[at]), math.exp(moved[at]))
            for at in order
            if moved[at]
        )

    def _beyond(self, row: Row) -> np.ndarray:
        """Farther outside the training rows' range than a tenth of it."""
        slack = 0.1 * (self.highs - self.lows)
        return (row < self.lows - slack) | (row > self.highs + slack)

    def _fits(self, hardware: Hardware) -> float:
        if hardware.kind != self.hardware.kind:
            return OTHER_KIND
        return 1.0 if hardware.topology == self.hardware.topology else OTHER_TOPOLOGY

    def _names(self, chosen: np.ndarray) -> tuple[str, ...]:
        return tuple(self.schema.names[at] for at in np.flatnonzero(chosen))


def score(truth: Floats, middle: Floats, spread: Floats) -> Floats:
    """How far off each prediction is, in units of how far the trees are apart; logarithms throughout."""
    return np.abs(truth - middle) / (spread + _LEAST_SPREAD)


def conformal_quantile(scores: Floats, level: float) -> float:
    """The score that a new one stays below with probability `level`: the ceil((n + 1) level)-th smallest of n.
    https://arxiv.org/abs/2107.07511, section 1.1."""
    rank = min(len(scores), math.ceil((len(scores) + 1) * level))
    return float(np.sort(scores)[rank - 1])


def _ratio(logarithm: float) -> float:
    return math.exp(min(max(0.0, logarithm), 10.0))
