"""What work of unknown length is still to be expected, from the lengths of finished work like it.

Gittins' rule (FORMULAS B5.2): with lengths X and a already done, the index of a job is the best ratio, over horizons
d, of the chance to end within d and the work that this takes on average,

    G(a) = max over d of P(X - a <= d | X > a) / E[min(X - a, d) | X > a].

1 / G(a) is what a job like it costs until one of them ends. It is small while many like it end soon, and grows once a
job has outlived them: then it is a long one.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

FEWEST = 4
"""Finished jobs from which on a history is one."""
OUTLIVED = 1.0
"""What has outlived all finished work has so many times what it has had still to come: sizes are heavy-tailed. So has
one more job besides each history, since no history knows the longest that will come."""


def gittins_remaining(lengths: Sequence[float], attained: float) -> float | None:
    """1 / G(attained), in the unit of the lengths, which ascend; None where too few have ended to tell.

    One unseen job, longer than all others, is added to the history.
    """
    if len(lengths) < FEWEST:
        return None
    longest = max(lengths[-1], attained) * (1.0 + OUTLIVED)
    left = [length - attained for length in lengths[bisect_right(lengths, attained) :]] + [longest - attained]
    best, spent = float("inf"), 0.0
    for ended, horizon in enumerate(left, start=1):
        spent += horizon
        best = min(best, (spent + (len(left) - ended) * horizon) / ended)
    return best


def expected_remaining(lengths: Sequence[float], attained: float, unseen: float) -> float:
    """What to reckon with: between Gittins' word and "as much again" (at least `unseen`), the geometric mean of both.

    A history knows better which jobs are short, but it is made of those that have ended, and short ones end first;
    where it alone is believed, long jobs come out as short ones. Without a history it is as much again.
    """
    again = max(unseen, attained)
    told = gittins_remaining(lengths, attained)
    return again if told is None else math.sqrt(told * again)
