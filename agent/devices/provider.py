"""One interface for devices of every sort: GPUs through NVML, CPU slots, scripted fakes."""

from dataclasses import dataclass, field
from typing import Protocol

from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.telemetry import Process


@dataclass(slots=True)
class Reading:
    """What one look at a device has found.

    values: as measured; counters: totals that only grow, from whose differences come rates. What could not be read is
    in `missing` with a reason and nowhere else. unwell: why the device cannot be used, empty where it can.
    """

    bus: str = ""
    parent: str = ""
    values: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    throttled: tuple[str, ...] | None = None
    processes: tuple[Process, ...] | None = None
    unwell: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """devices: in a stable order. trouble: why those of the whole node cannot be used now, empty where they can.

    here: False where the machine has none of this sort, as far as can be told.
    """

    devices: tuple[DeviceInfo, ...] = ()
    trouble: str = ""
    here: bool = True


class Provider(Protocol):
    """names: of the values that its devices should have. blocks: whether its calls may, and need threads of their own.

    No call raises.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def blocks(self) -> bool: ...

    def find(self) -> Found:
        """All devices there are now."""

    def read(self, id: str) -> Reading:
        """One device, by the id under which it was found."""
