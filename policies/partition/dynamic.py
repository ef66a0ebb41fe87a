"""Stage partitioning by dynamic programming over the period W with non-overlapped communication (FORMULAS B1.4)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from policies.cost import MARGIN, STATE_BYTES_PER_PARAMETER_BYTE, LayerCosts
from policies.model.device import DeviceKind

Bounds = tuple[int, ...]
"""Where a model is cut: stage s holds layers [bounds[s], bounds[s + 1])."""


def partitions(
    costs: LayerCosts,
    kind: DeviceKind,
    most_stages: int,
    in_flight: Callable[[int], float],
    precision: str = "float32",
) -> dict[int, Bounds]:
    """The best cut for each number of stages 1 .. most_stages that the model and the memory allow.

    W(l, s) = min over l' of max(A, t, (A + t) / 2 + c), with A = W(l', s - 1) the layers behind the cut, t the time of
    [l, l') and c the transfer between. It runs from the last stage to the first, so that a stage knows how many follow
    it, hence what it keeps: in_flight(k) is the number of micro-batches alive at the k-th stage from the end.
    """
    count = len(costs)
    time_s = costs.compute_s[None, :] - costs.compute_s[:, None] + 2 * kind.action_s
    transfer = np.array([kind.link.transfer_s(size) for size in costs.output_bytes])
    cut_s = np.concatenate(([0.0], np.where(costs.may_cut_after, transfer, np.inf)))
    upper = np.triu(np.ones_like(time_s, dtype=np.bool_), 1)
    best: list[NDArray[np.float64]] = [np.full(count + 1, np.inf)]
    best[0][count] = 0.0
    choice: list[NDArray[np.intp]] = [np.zeros(count + 1, dtype=np.intp)]
    found: dict[int, Bounds] = {}
    for k in range(1, min(most_stages, count) + 1):
        allowed = upper & _fits(costs, kind, in_flight(k), precision)
        behind = best[k - 1][None, :]
        if k == 1:
            value = np.maximum(time_s, behind)
        else:
            value = np.maximum(np.maximum(behind, time_s), (behind + time_s) / 2 + cut_s[None, :])
        value = np.where(allowed, value, np.inf)
        choice.append(value.argmin(axis=1))
        best.append(value.min(axis=1))
        if np.isfinite(best[k][0]):
            bounds = [0]
            for step in range(k, 0, -1):
                bounds.append(int(choice[step][bounds[-1]]))
            found[k] = tuple(bounds)
    return found


def _fits(costs: LayerCosts, kind: DeviceKind, in_flight: float, precision: str) -> NDArray[np.bool_]:
    if kind.memory_bytes is None:
        return np.ones((len(costs) + 1, len(costs) + 1), dtype=np.bool_)
    state = costs.parameter_bytes * STATE_BYTES_PER_PARAMETER_BYTE[precision]
    held = state + in_flight * costs.activation_bytes
    workspace = max(layer.workspace_bytes for layer in costs.layers)
    fits: NDArray[np.bool_] = (held[None, :] - held[:, None] + workspace) * MARGIN <= kind.memory_bytes
    return fits
