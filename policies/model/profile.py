"""What a model costs, layer by layer, on one kind of device."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer at the profile's micro-batch size. Seconds and bytes.

    output_bytes: what crosses to the next layer; activation_bytes: what the backward pass keeps;
    optimizer state is counted from parameter_bytes by the cost model.
    """

    name: str
    forward_s: float
    backward_input_s: float
    backward_weight_s: float
    output_bytes: int
    activation_bytes: int
    parameter_bytes: int
    workspace_bytes: int = 0
    atomic_with_next: bool = False

    @property
    def backward_s(self) -> float:
        return self.backward_input_s + self.backward_weight_s

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """All layers of one model at one micro-batch size (samples) on one device kind."""

    name: str
    microbatch_size: int
    device_kind: str
    layers: tuple[LayerProfile, ...]
