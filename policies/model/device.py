"""What a kind of device and its links cost."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """Between neighbouring ranks: one-way latency in seconds, bandwidth in bytes per second."""

    latency_s: float = 1e-4
    bandwidth_bytes_per_s: float = 1e9

    def transfer_s(self, size_bytes: float) -> float:
        """One way. Nothing to send costs nothing."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s if size_bytes > 0 else 0.0


FREE = Link(0.0, math.inf)
"""A link that costs nothing."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """One kind of device and the constants of its surroundings.

    memory_bytes: of one device; None = unknown = no limit. action_s: what the executor adds to each action (measured:
    35 to 60 us). step_s: what a step costs besides its schedule. start_s, state_bandwidth_bytes_per_s: a gang's start
    is a constant and the loading of its state; a resize through a checkpoint saves it first.
    host_bandwidth_bytes_per_s: between device and host memory, for an offloaded optimizer.
    """

    name: str
    memory_bytes: int | None = None
    link: Link = Link()
    action_s: float = 5e-5
    step_s: float = 0.0
    start_s: float = 3.0
    state_bandwidth_bytes_per_s: float = 5e8
    host_bandwidth_bytes_per_s: float = 1.2e10
