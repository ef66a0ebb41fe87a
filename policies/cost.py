"""THE cost function: everything that prices a layer range, a transfer, a stage or its memory asks here."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile

MARGIN = 1.05
"""Fragmentation: memory that the allocator holds beyond what is asked."""

_STATE = {"float64": (2.0, 2.0), "float32": (2.0, 2.0), "bfloat16": (2.0, 6.0), "float16": (2.0, 6.0)}
"""Per byte of parameters: parameters and gradients; two Adam moments, with a float32 master copy in half precision."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """A layer range at one micro-batch size on one device. Seconds and bytes, a micro-batch."""

    forward_s: float
    backward_input_s: float
    backward_weight_s: float
    output_bytes: int
    activation_bytes: int
    parameter_bytes: int
    workspace_bytes: int

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.backward_input_s + self.backward_weight_s


@dataclass(frozen=True, slots=True)
class Durations:
    """What timing needs to know of one pipeline: per global stage and micro-batch, in seconds.

    transfer_s: one way over each boundary, length stages - 1; free where both stages are on one rank.
    finish_s: after a stage's last backward, for gradient all-reduce and optimizer; empty for none.
    transfers_block: a transfer occupies the sender's compute. slow: factor on a rank's computing, by rank of the
    pipeline; empty where all devices are alike.
    """

    forward_s: tuple[float, ...]
    backward_input_s: tuple[float, ...]
    backward_weight_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    finish_s: tuple[float, ...] = ()
    transfers_block: bool = False
    slow: tuple[float, ...] = ()

    @property
    def compute_s(self) -> tuple[float, ...]:
        return tuple(map(sum, zip(self.forward_s, self.backward_input_s, self.backward_weight_s, strict=True)))


class LayerCosts:
    """Prefix sums over a profile's layers, so that any range [first, stop) is priced in constant time."""

    def __init__(self, profile: ModelProfile) -> None:
        self.layers = profile.layers
        self.forward_s = _prefix([layer.forward_s for layer in profile.layers])
        self.backward_input_s = _prefix([layer.backward_input_s for layer in profile.layers])
        self.backward_weight_s = _prefix([layer.backward_weight_s for layer in profile.layers])
        self.activation_bytes = _prefix([layer.activation_bytes for layer in profile.layers])
        self.parameter_bytes = _prefix([layer.parameter_bytes for layer in profile.layers])
        self.compute_s = self.forward_s + self.backward_input_s + self.backward_weight_s
        self.output_bytes = np.array([layer.output_bytes for layer in profile.layers], dtype=np.float64)
        self.whole_s = float(self.compute_s[-1])
        self.all_parameter_bytes = float(self.parameter_bytes[-1])
        self.heaviest_s = max(layer.compute_s for layer in profile.layers)
        self.workspace_bytes = np.array([layer.workspace_bytes for layer in profile.layers], dtype=np.float64)
        self.most_workspace_bytes = max(layer.workspace_bytes for layer in profile.layers)
        self.may_cut_after = np.array([not layer.atomic_with_next for layer in profile.layers], dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.layers)

    def stage(self, first: int, stop: int) -> StageCost:
        def total(prefix: NDArray[np.float64]) -> float:
            return float(prefix[stop] - prefix[first])

        return StageCost(
            total(self.forward_s),
            total(self.backward_input_s),
            total(self.backward_weight_s),
            self.layers[stop - 1].output_bytes,
            round(total(self.activation_bytes)),
            round(total(self.parameter_bytes)),
            max(layer.workspace_bytes for layer in self.layers[first:stop]),
        )


def _prefix(values: Sequence[float]) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(np.asarray(values, dtype=np.float64))))


def profile_at(profiles: Sequence[ModelProfile], size: int) -> ModelProfile:
    """The profile at a micro-batch size: measured, or on the straight line through the two nearest sizes.

    With a single measured size all but the parameters are taken to be proportional to the size.
    """
    known = sorted(profiles, key=lambda profile: (abs(profile.microbatch_size - size), profile.microbatch_size))
    near = known[0]
    if near.microbatch_size == size:
        return near
    others = [profile for profile in known if profile.microbatch_size != near.microbatch_size]
    if not others:
        scale = size / near.microbatch_size
        layers = tuple(_blend(layer, layer, scale, 0.0) for layer in near.layers)
    else:
        far = others[0]
        weight = (size - near.microbatch_size) / (far.microbatch_size - near.microbatch_size)
        layers = tuple(_blend(a, b, 1 - weight, weight) for a, b in zip(near.layers, far.layers, strict=True))
    return ModelProfile(near.name, size, near.device_kind, layers)


def _blend(a: LayerProfile, b: LayerProfile, of_a: float, of_b: float) -> LayerProfile:
    def mix(x: float, y: float) -> float:
        return max(0.0, x * of_a + y * of_b)

    return LayerProfile(
        a.name,
        mix(a.forward_s, b.forward_s),
        mix(a.backward_input_s, b.backward_input_s),
        mix(a.backward_weight_s, b.backward_weight_s),
        round(mix(a.output_bytes, b.output_bytes)),
        round(mix(a.activation_bytes, b.activation_bytes)),
        a.parameter_bytes,
        round(mix(a.workspace_bytes, b.workspace_bytes)),
        a.atomic_with_next,
    )


def all_reduce_s(size_bytes: float, replicas: int, link: Link) -> float:
    """A ring: 2 (r - 1) messages, 2 (r - 1) / r of the bytes."""
    if replicas < 2:
        return 0.0
    return 2 * (replicas - 1) * (link.latency_s + size_bytes / (replicas * link.bandwidth_bytes_per_s))


def durations(costs: LayerCosts, plan: ParallelPlan, kind: DeviceKind, slow: Sequence[float] = ()) -> Durations:
    """Price one pipeline of a plan: every stage with one of its replicas. slow: by rank of that pipeline."""
    priced = [costs.stage(stage.first, stage.stop) for stage in plan.stages]
    again = [cost.forward_s if stage.recompute else 0.0 for stage, cost in zip(plan.stages, priced, strict=True)]
    finish = []
    for stage, cost in zip(plan.stages, priced, strict=True):
        reduce_s = all_reduce_s(cost.parameter_bytes, len(stage.ranks), kind.link)
        move_s = 2 * cost.parameter_bytes / kind.host_bandwidth_bytes_per_s if plan.offload else 0.0
        finish.append(reduce_s + move_s)
    return Durations(
        tuple(cost.forward_s + kind.action_s for cost in priced),
        tuple(cost.backward_input_s + extra + kind.action_s for cost, extra in zip(priced, again, strict=True)),
        tuple(cost.backward_weight_s for cost in priced),
        tuple(kind.link.transfer_s(cost.output_bytes) for cost, _ in pairwise(priced)),
        tuple(finish),
        slow=tuple(slow),
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """How memory is counted: the knobs of a plan.

    recompute: only a stage's input is kept of each micro-batch, and one whole activation is rebuilt at a time.
    offload: the optimizer's state lives in host memory.
    """

    precision: str = "float32"
    recompute: bool = False
    offload: bool = False

    @property
    def state_per_parameter_byte(self) -> float:
        on_device, optimizer = _STATE[self.precision]
        return on_device + (0.0 if self.offload else optimizer)

    def stage_bytes(self, cost: StageCost, in_flight: float, *, input_bytes: int, versions: int = 1) -> int:
        """The most one rank holds for a stage: state, stashed weights, activations, workspace, the allocator's margin.

        in_flight: micro-batches whose activations live at once. versions: of the weights.
        """
        state = cost.parameter_bytes * (self.state_per_parameter_byte + versions - 1)
        kept = in_flight * cost.activation_bytes
        if self.recompute:
            kept = min(kept, in_flight * input_bytes + cost.activation_bytes)
        return round((state + kept + cost.workspace_bytes) * MARGIN)


def plan_memory_bytes(
    costs: LayerCosts, plan: ParallelPlan, in_flight: Sequence[float], versions: Sequence[int] = ()
) -> tuple[int, ...]:
    """Per stage. in_flight, versions: of each stage."""
    return tuple(
        Memory(plan.precision, stage.recompute, plan.offload).stage_bytes(
            costs.stage(stage.first, stage.stop),
            live,
            input_bytes=costs.layers[stage.first - 1].output_bytes if stage.first else 0,
            versions=kept,
        )
        for stage, live, kept in zip(plan.stages, in_flight, versions or (1,) * len(plan.stages), strict=True)
    )
