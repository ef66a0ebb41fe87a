"""The cuts that planners are compared with: equal layer counts, and the smallest heaviest stage."""

from collections.abc import Sequence
from itertools import accumulate


def uniform(layers: int, stages: int) -> tuple[int, ...]:
    """Bounds with layer counts that differ by at most one."""
    return tuple(round(layers * stage / stages) for stage in range(stages + 1))


def balanced(weights: Sequence[float], stages: int) -> tuple[int, ...]:
    """Bounds that make the heaviest stage as light as possible; every stage has at least one layer.

    Raises:
        ValueError: fewer layers than stages.
    """
    if len(weights) < stages:
        raise ValueError(f"{len(weights)} layers cannot be cut into {stages} stages")
    prefix = [0.0, *accumulate(weights)]
    best = list(prefix)
    choices: list[list[int]] = []
    for stage in range(2, stages + 1):
        row, choice = [float("inf")] * len(prefix), [0] * len(prefix)
        for stop in range(stage, len(prefix)):
            for first in range(stop - 1, stage - 2, -1):
                last = prefix[stop] - prefix[first]
                if last >= row[stop]:
                    break
                if max(best[first], last) < row[stop]:
                    row[stop], choice[stop] = max(best[first], last), first
        best = row
        choices.append(choice)
    bounds = [len(weights)]
    for choice in reversed(choices):
        bounds.append(choice[bounds[-1]])
    return tuple(reversed([*bounds, 0]))
