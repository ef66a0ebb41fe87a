"""Good cuts of one model for one number of stages: the candidates that event timing then decides between."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policies.cost import MARGIN, LayerCosts, Memory
from policies.model.device import DeviceKind
from policies.partition.blocks import Blocks, Bounds, Floats, blocks_of
from policies.partition.bound import flush_s, period_s
from policies.partition.dynamic import Combine, Cuts, Dynamic, compute_only, loop, overlapped
from policies.partition.repartition import improve
from policies.partition.replicated import Replicated, replicated_cuts


def uniform(layers: int, stages: int) -> Bounds:
    """Layer counts that differ by at most one."""
    return tuple(layers * stage // stages for stage in range(stages + 1))


class Cutter:
    """Cuts one model at one micro-batch size for one kind of device.

    slow: factor on the time of each stage, first to last; empty where all devices are alike. memory: how it is counted.
    most_blocks: layers are condensed to about so many blocks; the last polish is by layers again, within so many
    evaluations.
    """

    def __init__(
        self,
        costs: LayerCosts,
        kind: DeviceKind,
        slow: Sequence[float] = (),
        memory: Memory | None = None,
        most_blocks: int = 256,
        polish: int = 300,
    ) -> None:
        self.costs, self.kind, self.slow = costs, kind, tuple(slow)
        self._memory, self._polish = memory or Memory(), polish
        self._blocks = blocks_of(costs, kind, most_blocks)
        self._allowed = (0, *(int(i) + 1 for i in np.flatnonzero(costs.may_cut_after[:-1])), len(costs))
        self._transfer_s = [kind.link.transfer_s(size) for size in costs.output_bytes]
        self._candidates: dict[tuple[int, int, int], list[Bounds]] = {}
        self._tables: dict[tuple[str, int, int, int], Cuts] = {}
        self._masks: dict[int, NDArray[np.bool_]] = {}

    def stage_times(self, bounds: Bounds) -> tuple[list[float], list[float]]:
        """Computing of each stage and one-way transfer over each boundary, in seconds a micro-batch."""
        own: Floats = np.diff(self.costs.compute_s[list(bounds)]) + 2 * self.kind.action_s
        if self.slow:
            own = own * np.asarray(self.slow)
        return own.tolist(), [self._transfer_s[bound - 1] for bound in bounds[1:-1]]

    def period(self, bounds: Bounds, depth: int = 1) -> float:
        """The exact W of a cut with `depth` more micro-batches alive in front of each boundary than behind."""
        own, transfer = self.stage_times(bounds)
        return period_s(own, transfer, [1 + depth * (len(own) - 1 - stage) for stage in range(len(own))])

    def candidates(self, stages: int, microbatches: int, depth: int = 1) -> list[Bounds]:
        """Cuts worth timing, best guess first, without repetitions; empty where none fits the memory."""
        alive = min(microbatches, 1 + depth * (stages - 1))
        if (stages, alive, depth) not in self._candidates:
            self._candidates[stages, alive, depth] = self._find(stages, microbatches, depth)
        return self._candidates[stages, alive, depth]

    def _find(self, stages: int, microbatches: int, depth: int) -> list[Bounds]:
        first = self.programme("loop", stages, microbatches, depth)
        if first is None:
            return []
        exact = self.exact(first, microbatches, depth)
        best = improve(exact, self._allowed, lambda bounds: self.estimate(bounds, microbatches, depth), self._polish)
        others = [self.programme(name, stages, microbatches, depth) for name in ("compute", "overlapped", "parameters")]
        even = uniform(len(self.costs), stages)
        others.append(even if set(even) <= set(self._allowed) else None)
        return list(dict.fromkeys(bounds for bounds in (best, exact, first, *others) if bounds is not None))

    def replicated(self, devices: int, microbatches: int) -> list[Replicated]:
        """Cuts with replicas that differ from stage to stage, one for each number of stages; for few devices."""
        few = blocks_of(self.costs, self.kind, 48)
        compute = few.time_s[None, :] - few.time_s[:, None] + 2 * self.kind.action_s
        parameters = few.parameter_bytes[None, :] - few.parameter_bytes[:, None]
        link = self.kind.link

        def stage_s(replicas: int) -> Floats:
            if replicas == 1:
                return compute
            reduce_s = 2 * (replicas - 1) * (link.latency_s + parameters / (replicas * link.bandwidth_bytes_per_s))
            table: Floats = compute + replicas * reduce_s / microbatches
            return table

        def fits(alive: int) -> NDArray[np.bool_]:
            return self._mask(min(alive, microbatches), few)

        return replicated_cuts(few, devices, stage_s, None if self.kind.memory_bytes is None else fits)

    def programme(self, name: str, stages: int, microbatches: int = 1, depth: int = 1) -> Bounds | None:
        """The cut of one dynamic programme: loop (W), compute (heaviest stage), overlapped (max of computing and round
        trips), parameters or memory (the most of it on a stage)."""
        most = stages if self.slow else max(128, 1 << (stages - 1).bit_length())
        key = name, most, *((microbatches, depth) if self.kind.memory_bytes is not None else (0, 0))
        if key not in self._tables:
            combine: Combine = {"loop": loop, "overlapped": overlapped}.get(name, compute_only)
            self._tables[key] = self._dynamic(stages, microbatches, depth, self._weights(name)).best(most, combine)
        return self._tables[key].get(stages)

    def exact(self, bounds: Bounds, microbatches: int = 1, depth: int = 1) -> Bounds:
        """From a first cut to the one with the smallest exact period."""
        dynamic = self._dynamic(len(bounds) - 1, microbatches, depth)
        return dynamic.exact(bounds, lambda candidate: self.period(candidate, depth), depth)

    def repartition(self, bounds: Bounds, microbatches: int, depth: int = 1, evaluations: int = 3000) -> Bounds:
        """From a running cut to a better one by small moves; never worse by `estimate`."""
        return improve(bounds, self._allowed, lambda b: self.estimate(b, microbatches, depth), evaluations)

    def estimate(self, bounds: Bounds, microbatches: int, depth: int = 1) -> tuple[float, ...]:
        """The flushed step in closed form, infinite where the memory does not suffice; then how uneven stages are."""
        own, transfer = self.stage_times(bounds)
        stages = len(own)
        limit = self.kind.memory_bytes
        if limit is not None and self._held(bounds, microbatches, depth).max() > limit:
            return (float("inf"),)
        period = period_s(own, transfer, [1 + depth * (stages - 1 - stage) for stage in range(stages)])
        return flush_s(own, transfer, microbatches, period), sum(time * time for time in own)

    def _weights(self, name: str) -> Floats | None:
        """What a programme balances; None for time."""
        if name == "parameters":
            return self._blocks.parameter_bytes
        if name == "memory":
            state = self._blocks.parameter_bytes * self._memory.state_per_parameter_byte
            held: Floats = state + self._blocks.activation_bytes
            return held
        return None

    def _dynamic(self, stages: int, microbatches: int, depth: int, weights: Floats | None = None) -> Dynamic:
        slow = self.slow
        return Dynamic(
            self._blocks,
            2 * self.kind.action_s,
            weights=weights,
            fits=None if self.kind.memory_bytes is None else lambda k: self._fits(k, microbatches, depth),
            slow=(lambda k: slow[stages - k]) if slow else None,
        )

    def _fits(self, k: int, microbatches: int, depth: int) -> NDArray[np.bool_]:
        """Which [row, column) of blocks fit a device as the k-th stage from the end."""
        alive = min(microbatches, 1 + depth * (k - 1))
        if alive not in self._masks:
            self._masks[alive] = self._mask(alive, self._blocks)
        return self._masks[alive]

    def _mask(self, alive: int, blocks: Blocks) -> NDArray[np.bool_]:
        costs, memory, starts = self.costs, self._memory, blocks.starts
        state = costs.parameter_bytes[starts] * memory.state_per_parameter_byte
        kept = costs.activation_bytes[starts]
        if memory.recompute:
            inputs = np.array([0.0 if s == 0 else costs.output_bytes[s - 1] for s in starts])
            held = _between(state + kept) + alive * inputs[:, None]
        else:
            held = _between(state + alive * kept)
        fits: NDArray[np.bool_] = (held + costs.most_workspace_bytes) * MARGIN <= (self.kind.memory_bytes or 0)
        return fits

    def _held(self, bounds: Bounds, microbatches: int, depth: int) -> Floats:
        """Bytes of each stage, as `Memory.stage_bytes` counts them."""
        costs, memory, at = self.costs, self._memory, list(bounds)
        alive = np.minimum(microbatches, 1 + depth * np.arange(len(at) - 2, -1, -1))
        own = np.diff(costs.activation_bytes[at])
        kept = alive * own
        if memory.recompute:
            inputs = np.array([0.0, *costs.output_bytes[[bound - 1 for bound in at[1:-1]]]])
            kept = np.minimum(kept, alive * inputs + own)
        workspace = np.maximum.reduceat(costs.workspace_bytes, at[:-1])
        held: Floats = (
            np.diff(costs.parameter_bytes[at]) * memory.state_per_parameter_byte + kept + workspace
        ) * MARGIN
        return held


def _between(prefix: Floats) -> Floats:
    difference: Floats = prefix[None, :] - prefix[:, None]
    return difference
