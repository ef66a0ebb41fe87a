"""From several futures to what a person is told: ranges that shall hold nine times in ten, or that nobody knows.

A range is made on a logarithmic scale from the futures' mean and deviation, and as wide as it must have been for jobs
that have ended lately: how far the truth lay from the middle, in deviations, is kept as a *score*, and the range
reaches from the 5% to the 95% quantile of the newest scores (conformal prediction, Papadopoulos et al. 2002, with
signed scores). The newest count most, since loads drift (Barber et al. 2023). At first a few scores stand in that
follow from Student's t distribution.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import msgspec

from scheduler.forecast.ahead import Fate

CONFIDENCE = 0.9
NEWEST_SCORES = 200
LEAST_SPREAD = 0.05
LEAST_SHARE = 0.5
"""Of the futures a job must come to its end in, or its end is unknown."""

LATE = 1.5
"""A future that was broken off before a job's end says that this takes longer: so many times as long as it went."""

_STUDENT = (0.13, 0.41, 0.74, 1.19, 2.13)
"""Quantiles of |t| with 4 degrees of freedom, for five futures."""

PRIOR = tuple(sorted(sign * value * math.sqrt(1 + 1 / 5) for value in _STUDENT for sign in (-1.0, 1.0)))
PRIOR_WEIGHT = 0.2
"""Of each, where the newest that was seen has 1: together they count as two ended jobs."""
HALF_LIFE = 20.0
"""In ended jobs: a score that so many came after counts half."""


class Range(msgspec.Struct, frozen=True):
    """Moments in microseconds. spread: the futures' standard deviation of the logarithm of the time from now."""

    low_us: int
    mid_us: int
    high_us: int
    spread: float


class Outlook(msgspec.Struct, frozen=True):
    """A job's as of made_us. start: None where it has started, or unknown. end: None where unknown.

    Parts in seconds, of the whole life, means over the futures. nodes, plan: what it gets first in most futures.
    guessed: its work or its speed is not known.
    """

    job: int
    made_us: int
    futures: int
    start: Range | None
    end: Range | None
    queueing_s: float
    startup_s: float
    training_s: float
    preemptions_s: float
    cleanup_s: float
    preemptions: float
    nodes: dict[str, int]
    plan: str
    guessed: bool


class Scores(msgspec.Struct, frozen=True):
    """low, high: how many deviations below and above its middle a range reaches."""

    low: float
    high: float

    @classmethod
    def of(cls, newest: Sequence[float]) -> "Scores":
        """newest: scores of jobs that have ended, oldest first."""
        seen = reversed(newest[-NEWEST_SCORES:])
        weighed = [(value, PRIOR_WEIGHT) for value in PRIOR]
        weighed += [(value, 0.5 ** (later / HALF_LIFE)) for later, value in enumerate(seen)]
        return cls(min(0.0, _tail(sorted(weighed))), max(0.0, _tail(sorted(weighed, reverse=True))))


def _tail(weighed: Sequence[tuple[float, float]]) -> float:
    """The first value beyond which lies half of what may be outside. weighed: values with weights, in their order."""
    left = (1 - CONFIDENCE) / 2 * sum(weight for _, weight in weighed)
    for value, weight in weighed:
        left -= weight
        if left < 0:
            return value
    raise AssertionError("unreachable")


def score(made_us: int, mid_us: int, spread: float, truth_us: int) -> float:
    """How many deviations the truth lay after the middle."""
    return math.log(_left_s(truth_us, made_us) / _left_s(mid_us, made_us)) / spread


def look(futures: Sequence[Sequence[Fate]], now_us: int, scores: Scores) -> dict[int, Outlook]:
    """By job id."""
    fates: dict[int, list[Fate]] = {}
    for future in futures:
        for fate in future:
            fates.setdefault(fate.job, []).append(fate)
    return {job: _outlook(job, mine, now_us, scores) for job, mine in fates.items()}


def _outlook(job: int, fates: list[Fate], now_us: int, scores: Scores) -> Outlook:
    guessed = any(fate.guessed for fate in fates)
    starts = [fate.start_us for fate in fates]
    waits = any(start is not None for start in starts) or all(fate.training_s == 0 for fate in fates)
    places = Counter((tuple(fate.nodes.items()), fate.plan) for fate in fates if fate.start_us is not None)
    (nodes, plan), _ = places.most_common(1)[0] if places else (((), ""), 0)
    return Outlook(
        job=job, made_us=now_us, futures=len(fates), nodes=dict(nodes), plan=plan, guessed=guessed,
        start=_range(fates, starts, now_us, scores) if waits else None,
        end=None if guessed else _range(fates, [fate.end_us for fate in fates], now_us, scores),
        queueing_s=fmean(fate.queueing_s for fate in fates), startup_s=fmean(fate.startup_s for fate in fates),
        training_s=fmean(fate.training_s for fate in fates), cleanup_s=fmean(fate.cleanup_s for fate in fates),
        preemptions_s=fmean(fate.preemptions_s for fate in fates),
        preemptions=fmean(fate.preemptions for fate in fates),
    )  # fmt: skip


def _range(fates: list[Fate], moments: Sequence[int | None], now_us: int, scores: Scores) -> Range | None:
    known = sum(moment is not None for moment in moments)
    if not known or known < LEAST_SHARE * len(moments):
        return None
    logs = [
        math.log(_left_s(moment, now_us) if moment is not None else LATE * _left_s(fate.until_us, now_us))
        for fate, moment in zip(fates, moments, strict=True)
    ]
    mean = fmean(logs)
    spread = math.hypot(LEAST_SPREAD, math.sqrt(sum((log - mean) ** 2 for log in logs) / max(1, len(logs) - 1)))
    low, mid, high = (now_us + round(1e6 * math.exp(mean + reach * spread)) for reach in (scores.low, 0, scores.high))
    return Range(low, mid, high, spread)


def _left_s(moment_us: int, now_us: int) -> float:
    """At least a second: nobody can foresee more exactly."""
    return max(1.0, (moment_us - now_us) / 1e6)
