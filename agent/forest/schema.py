"""What a forest is given: named features in an order, with a version, and a hash that changes with any of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]


@dataclass(frozen=True)
class Schema:
    """names: in the order in which a model has them."""

    name: str
    version: int
    names: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Of name, version and the order of the features: what a model file must agree with."""
        return hashlib.sha256("\n".join((self.name, str(self.version), *self.names)).encode()).hexdigest()[:16]

    def row(self, values: Mapping[str, float | None]) -> Row:
        """One value a feature, not-a-number where it is missing, unknown or not finite. Other names are left out."""
        found = np.array([_number(values.get(name)) for name in self.names], dtype=np.float64)
        found[~np.isfinite(found)] = np.nan
        return found


def _number(value: float | None) -> float:
    return float(value) if value is not None else np.nan


DEVICE = (
    "busy_percent", "memory_busy_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent",
    "dram_active_percent", "memory_used_share", "power_share", "sm_clock_hz", "throttle_reasons", "pcie_bytes_per_s",
    "nvlink_bytes_per_s", "steal_percent", "foreign_processes",
)  # fmt: skip
HOST = (
    "load_per_core", "host_busy_percent", "cpu_pressure_percent", "memory_pressure_percent", "page_faults_per_s",
    "host_memory_used_share",
)  # fmt: skip
NETWORK = ("loopback_bytes_per_s", "network_bytes_per_s", "tcp_retransmit_share")
OWN = ("own_busy_percent", "own_wait_percent", "own_timeslices_per_s")
DERIVED = (
    "foreign_busy_percent", "compute_communication_ratio", "stage_busy_cv", "busy_mean_percent",
    "own_wait_mean_percent", "busy_trend_percent_per_s",
)  # fmt: skip

NODE = Schema("node", 1, (*DEVICE, *HOST, *NETWORK, *OWN, *DERIVED))
"""What an agent measures of each of its devices: 32 features, see docs/interference.md."""

COUNTERS = (
    "PCIe Write Requests to BAR1 [Requests]", "PCIe Read Requests to BAR1 [Requests]",
    "PCIe TX Throughput [Throughput %]", "Vertex/Tess/Geometry Warps in Flight [Avg Warps per Cycle]",
    "Vertex/Tess/Geometry Warps in Flight [Avg]", "Vertex/Tess/Geometry Warps in Flight [Throughput %]",
    "Tensor Active [Throughput %]", "SM Issue [Throughput %]", "SM Active [Throughput %]",
    "SYS Clock Frequency [MHz]", "GPC Clock Frequency [MHz]", "GR Active [Throughput %]",
    "Sync Compute in Flight [Throughput %]", "Async Compute in Flight [Throughput %]",
    "Pixel Warps in Flight [Throughput %]", "Pixel Warps in Flight [Avg]",
    "Pixel Warps in Flight [Avg Warps per Cycle]", "Compute Warps in Flight [Throughput %]",
    "Compute Warps in Flight [Avg]", "Compute Warps in Flight [Avg Warps per Cycle]",
    "Unallocated Warps in Active SMs [Throughput %]", "Unallocated Warps in Active SMs [Avg]",
    "Unallocated Warps in Active SMs [Avg Warps per Cycle]", "DRAM Read Bandwidth [Throughput %]",
    "DRAM Write Bandwidth [Throughput %]", "PCIe RX Throughput [Throughput %]",
)  # fmt: skip
MODEL_SIZES = ("mac", "params", "count_relu", "count_linear", "count_Conv2d", "count_MaxPool2d")

DYNPIPE = Schema("dynpipe", 1, (*COUNTERS, *MODEL_SIZES))
"""Of DynPipe's published measurements: 26 counters of a GPU and 6 sizes of the model, in the order of its file."""

SCHEMAS = {schema.name: schema for schema in (NODE, DYNPIPE)}
