"""The agent's own Prometheus endpoint, on loopback only: every value of the newest sample that is known."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduler.protocol.telemetry import DeviceSample, Telemetry


class Exporter(Collector):
    """newest: the newest sample, None before the first."""

    def __init__(self, newest: Callable[[], Telemetry | None]) -> None:
        self._newest = newest

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing ahead: what there is depends on the devices."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        telemetry = self._newest()
        if telemetry is None:
            return
        devices = [((one.id, one.kind), one.values | _slowdown(one)) for one in telemetry.devices]
        interfaces = [((one.name, one.kind), one.values) for one in telemetry.interfaces]
        yield from _families("jct_agent_device", ("device", "kind"), devices)
        yield from _families("jct_agent_interface", ("interface", "kind"), interfaces)
        yield from _families("jct_agent_host", (), [((), telemetry.host)])
        yield GaugeMetricFamily("jct_agent_late_readings", "Since the agent's start.", value=telemetry.late)


def _slowdown(device: DeviceSample) -> dict[str, float | None]:
    return {"slowdown": device.slowdown.ratio if device.slowdown is not None else None}


def _families(
    prefix: str, labels: tuple[str, ...], found: list[tuple[Any, dict[str, float | None]]]
) -> Iterator[GaugeMetricFamily]:
    """One gauge a name of a value. What is null has no line."""
    names = dict.fromkeys(name for _, values in found for name in values)
    for name in names:
        family = GaugeMetricFamily(f"{prefix}_{name}", "Of the newest sample; the end of its name is the unit.",
                                   labels=labels)  # fmt: skip
        for key, values in found:
            if (value := values.get(name)) is not None:
                family.add_metric(key, value)
        yield family


def serve(port: int, newest: Callable[[], Telemetry | None]) -> tuple[int, Callable[[], None]]:
    """Answers on 127.0.0.1 from a thread. Returns the port, chosen where it is 0, and what ends it. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(Exporter(newest))
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), close
