"""What is cut: layers, or blocks of layers that stay together, with prefix sums and the price of each cut."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.cost import LayerCosts
from policies.model.device import DeviceKind

Bounds = tuple[int, ...]
"""Where a model is cut: stage s holds layers [bounds[s], bounds[s + 1])."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """M blocks in order. All arrays have length M + 1, indexed by the boundary before a block.

    starts: layer index. time_s, parameter_bytes, activation_bytes: sums of all layers before the boundary.
    cut_s: one-way transfer over the boundary; infinite where a cut is forbidden.
    """

    starts: NDArray[np.intp]
    time_s: Floats
    parameter_bytes: Floats
    activation_bytes: Floats
    cut_s: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    def bounds(self, of_blocks: list[int]) -> Bounds:
        return tuple(int(self.starts[boundary]) for boundary in of_blocks)


def blocks_of(costs: LayerCosts, kind: DeviceKind, most: int = 256) -> Blocks:
    """Condense layers into about `most` blocks, in time linear in the layers.

    Light layers join their heavy neighbour: a block is closed once it has its share of the whole time, and never where
    a cut is forbidden. With fewer layers than `most` every allowed boundary stays.
    """
    layers = len(costs)
    allowed = np.concatenate(([True], costs.may_cut_after[:-1], [True]))
    inside = np.flatnonzero(allowed)
    if len(inside) - 1 > most:
        quota = costs.compute_s[layers] / most
        group = np.floor(costs.compute_s[inside] / quota) if quota > 0 else np.arange(len(inside)) * most // layers
        keep = np.concatenate(([True], group[1:-1] != group[:-2], [True]))
        inside = inside[keep]
    transfer = np.array([0.0, *(kind.link.transfer_s(size) for size in costs.output_bytes[:-1]), 0.0])
    return Blocks(
        inside, costs.compute_s[inside], costs.parameter_bytes[inside], costs.activation_bytes[inside], transfer[inside]
    )
