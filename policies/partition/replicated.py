"""Stages with different numbers of replicas: dynamic programming over W(l, s, r, i) (FORMULAS B1.4, B1.5)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policies.partition.blocks import Blocks, Bounds, Floats

Replicated = tuple[Bounds, tuple[int, ...]]
"""A cut, and the replicas of each stage."""


def replicated_period_s(compute_s: Sequence[float], transfer_s: Sequence[float], replicas: Sequence[int]) -> float:
    """W of 1F1B whose stage s works on r_s micro-batches at a time: an interval of stages holds sum(r) tokens, and its
    cycle takes their computing, undivided, and the round trips between them."""
    worst = 0.0
    for first in range(len(compute_s)):
        total, tokens = 0.0, 0
        for last in range(first, len(compute_s)):
            total += compute_s[last] + (2 * transfer_s[last - 1] if last > first else 0.0)
            tokens += replicas[last]
            worst = max(worst, total / tokens)
    return worst


def replicated_cuts(
    blocks: Blocks,
    devices: int,
    stage_s: Callable[[int], Floats],
    fits: Callable[[int], NDArray[np.bool_]] | None = None,
) -> list[Replicated]:
    """For each number of stages the cut and replicas with the smallest exact period on exactly `devices` devices.

    stage_s: seconds of [row, column) for one micro-batch at a stage with r replicas, gradient all-reduce included.
    fits: which [row, column) fit a device when k micro-batches are alive.
    """
    upper = np.triu(np.ones((len(blocks) + 1, len(blocks) + 1), dtype=np.bool_), 1)
    tables = {r: np.where(upper, stage_s(r), np.inf) for r in range(1, devices + 1)}
    if fits is None:
        costs = {(r, i): tables[r] for i in range(1, devices + 1) for r in range(1, i + 1)}
    else:
        costs = {
            (r, i): np.where(fits(-(-i // r)), tables[r], np.inf)
            for i in range(1, devices + 1)
            for r in range(1, i + 1)
        }
    found = (_best(blocks, devices, stages, costs) for stages in range(1, min(devices, len(blocks)) + 1))
    return [cut for cut in found if cut is not None]


def _best(blocks: Blocks, devices: int, stages: int, costs: dict[tuple[int, int], Floats]) -> Replicated | None:
    """Halve the range of the period until it is narrow, then ask for less than what was reached until there is none."""
    best: Replicated | None = None
    low = float(blocks.time_s[-1]) / devices
    high = float(max(table[np.isfinite(table)].max(initial=0.0) for table in costs.values()))
    high += 2 * float(blocks.cut_s.sum())
    wanted = high
    for _ in range(60):
        boundaries, replicas = _within(blocks, devices, stages, wanted, costs)
        if replicas:
            best, high = (
                (blocks.bounds(boundaries), replicas),
                min(wanted, _period(blocks, boundaries, replicas, costs)),
            )
        elif best is None or wanted >= high * (1 - 1e-8):
            break
        else:
            low = wanted
        wanted = (low + high) / 2 if high - low > 1e-3 * high else high * (1 - 1e-9)
    return best


def _period(
    blocks: Blocks, boundaries: list[int], replicas: tuple[int, ...], costs: dict[tuple[int, int], Floats]
) -> float:
    left = [sum(replicas[stage:]) for stage in range(len(replicas))]
    cells = zip(replicas, left, pairwise(boundaries), strict=True)
    own = [float(costs[r, i][first, stop]) for r, i, (first, stop) in cells]
    return replicated_period_s(own, [float(blocks.cut_s[cut]) for cut in boundaries[1:-1]], replicas)


def _within(
    blocks: Blocks, devices: int, stages: int, period: float, costs: dict[tuple[int, int], Floats]
) -> tuple[list[int], tuple[int, ...]]:
    """A cut whose period is at most `period`, or no replicas. e(l, s, i): the least excess of the layers behind l, in s
    stages on i devices; the stage in front of them takes r of its devices."""
    count = len(blocks)
    none = np.full(count + 1, np.inf)
    excess = {(0, 0): np.where(np.arange(count + 1) == count, -np.inf, np.inf)}
    winner: dict[tuple[int, int], NDArray[np.intp]] = {}
    column: dict[tuple[int, int, int], NDArray[np.intp]] = {}
    for s in range(1, stages + 1):
        for i in range(s, devices + 1):
            behind = {r: excess.get((s - 1, i - r), none) for r in range(1, i - s + 2)}
            tables = {
                r: costs[r, i] - period * r + np.maximum(0.0, value + 2 * blocks.cut_s)[None, :]
                for r, value in behind.items()
            }
            rows = []
            for r, table in tables.items():
                column[s, i, r] = table.argmin(axis=1)
                rows.append(table[np.arange(count + 1), column[s, i, r]])
            winner[s, i] = np.array(rows).argmin(axis=0)
            value = np.array(rows).min(axis=0)
            excess[s, i] = np.where(value <= period * 1e-12, value, np.inf)
    if not np.isfinite(excess[stages, devices][0]):
        return [], ()
    boundaries, replicas, left = [0], [], devices
    for s in range(stages, 0, -1):
        r = int(winner[s, left][boundaries[-1]]) + 1
        boundaries.append(int(column[s, left, r][boundaries[-1]]))
        replicas.append(r)
        left -= r
    return boundaries, tuple(replicas)
