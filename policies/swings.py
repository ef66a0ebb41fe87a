"""Bubbles seen from outside: utilisation that swings with a period, and whether that is the period of a job's steps."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_SAMPLES = 40
LEAST_DEPTH_PERCENT = 20.0
LEAST_CORRELATION = 0.5
NEAR = 0.6
"""Of the best correlation: the first peak that comes so near is the period, and later ones are its multiples. A period
that is no whole number of samples shows better in some multiple of it."""
SAME = 0.15


class Swing(NamedTuple):
    """depth_percent: from the ninth decile of utilisation down to the first."""

    period_s: float
    depth_percent: float


def swing(busy_percent: Sequence[float], every_s: float) -> Swing | None:
    """How a utilisation that was sampled every `every_s` swings; None where it does not, or too little is known.

    The period is the lag of the first high peak of the autocorrelation, and must have been seen twice.
    """
    count = len(busy_percent)
    if count < LEAST_SAMPLES:
        return None
    busy = np.asarray(busy_percent, dtype=np.float64)
    low, high = np.percentile(busy, (10, 90))
    if high - low < LEAST_DEPTH_PERCENT:
        return None
    around = busy - busy.mean()
    lags = np.arange(count // 2 + 1)
    products = np.correlate(around, around, "full")[count - 1 :][: len(lags)]
    found = products / (count - lags) / np.mean(around**2)
    lag = _first_peak(found)
    return Swing(lag * every_s, float(high - low)) if lag is not None else None


def _first_peak(correlation: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float | None:
    """Its lag, between samples by the parabola through three of them."""
    below = np.flatnonzero(correlation < 0)
    if not len(below) or below[0] >= len(correlation) - 1:
        return None
    later = correlation[below[0] :]
    if later.max() < LEAST_CORRELATION:
        return None
    lag = int(below[0] + np.flatnonzero(later >= NEAR * later.max())[0])
    while lag + 1 < len(correlation) and correlation[lag + 1] > correlation[lag]:
        lag += 1
    if lag + 1 == len(correlation):
        return float(lag)
    before, here, after = correlation[lag - 1 : lag + 2]
    bend = before - 2 * here + after
    return lag + float(0.5 * (before - after) / bend) if bend < 0 else float(lag)


def is_of_steps(period_s: float, step_s: float, every_s: float) -> bool:
    """Whether utilisation that was sampled every `every_s` swings once a step. Steps shorter than two samples show with
    the period that sampling makes of theirs."""
    turns = every_s / step_s
    if not math.isfinite(turns):
        return False
    shown = abs(turns - round(turns))
    return shown > 0 and abs(period_s - every_s / shown) <= SAME * period_s
