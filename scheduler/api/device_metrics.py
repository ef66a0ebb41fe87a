"""What devices measure, for Prometheus: by node and device kind, never by device or job. Nulls do not count."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily

from scheduler.core.entities import NodeState
from scheduler.core.state import Sensed, State

Place = tuple[str, str]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_GAUGES: tuple[tuple[str, str, Callable[[Sequence[float]], float], str], ...] = (
    ("busy_percent", "jctd_device_busy_percent", _mean, "Mean part of the time in which devices were busy."),
    ("sm_active_percent", "jctd_device_sm_active_percent", _mean, "Mean part of the multiprocessors that were busy."),
    ("dram_active_percent", "jctd_device_dram_active_percent", _mean, "Mean part of the memory bandwidth in use."),
    ("memory_used_bytes", "jctd_device_memory_used_bytes", sum, "Memory in use."),
    ("memory_total_bytes", "jctd_device_memory_total_bytes", sum, "Memory there is."),
    ("pcie_tx_bytes_per_s", "jctd_device_pcie_tx_bytes_per_second", sum, "PCIe traffic from devices."),
    ("pcie_rx_bytes_per_s", "jctd_device_pcie_rx_bytes_per_second", sum, "PCIe traffic to devices."),
    ("power_w", "jctd_device_power_watts", sum, "Power drawn."),
    ("temperature_c", "jctd_device_temperature_celsius", max, "The hottest device."),
)


def device_families(state: State) -> Iterator[GaugeMetricFamily]:
    """Of the nodes that are up."""
    values: dict[tuple[str, Place], list[float]] = defaultdict(list)
    unread: dict[Place, int] = defaultdict(int)
    strangers: dict[Place, int] = defaultdict(int)
    for node, sensed in _up(state):
        for sample in sensed.telemetry.devices:
            place = node, sample.kind
            known = {name: value for name, value in sample.values.items() if value is not None}
            for name, value in known.items():
                values[name, place].append(value)
            unread[place] += not known
            strangers[place] += sum(process.whose != "job" for process in sample.processes or ())
    for name, title, merge, text in _GAUGES:
        found = {place: known for (of, place), known in values.items() if of == name}
        yield _family(title, text, {place: _of_place(place, name, merge)(known) for place, known in found.items()})
    yield _family("jctd_devices_unread", "Devices of which nothing at all is known.", unread)
    yield _family("jctd_device_foreign_processes", "Processes on devices that belong to no job, or unknown.", strangers)
    worst: dict[Place, float] = {}
    contested: dict[Place, int] = defaultdict(int)
    for node, sensed in _up(state):
        for sample in sensed.telemetry.devices:
            if sample.slowdown is not None:
                place = node, sample.kind
                worst[place] = max(worst.get(place, 1.0), sample.slowdown.ratio)
                contested[place] += sample.slowdown.contested
    yield _family("jctd_device_slowdown", "Of the device that neighbours slow most: 2 is twice as long a step.", worst)
    yield _family("jctd_devices_contested", "Devices that neighbours slow so much that passes avoid them.", contested)
    late = GaugeMetricFamily("jctd_node_late_readings", "Readings too late since the agent's start.", labels=["node"])
    for node, sensed in _up(state):
        late.add_metric([node], sensed.telemetry.late)
    yield late


def _of_place(
    place: Place, name: str, merge: Callable[[Sequence[float]], float]
) -> Callable[[Sequence[float]], float]:
    """CPU slots each tell the memory of the machine that they share."""
    return max if place[1] == "cpu" and name.startswith("memory") else merge


def _up(state: State) -> Iterator[tuple[str, Sensed]]:
    for node, sensed in state.sensed.items():
        if (known := state.nodes.get(node)) is not None and known.state is NodeState.UP:
            yield node, sensed


def _family(name: str, text: str, values: dict[Place, float] | dict[Place, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["node", "kind"])
    for place, value in values.items():
        family.add_metric(place, value)
    return family
