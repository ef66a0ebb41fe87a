"""Whether a device's utilisation swings, over a minute of samples: values `swing_percent` and `swing_period_s`."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from policies.swings import Swing, swing
from scheduler.protocol.telemetry import DeviceSample, Telemetry

KEPT, EVERY = 120, 4


@dataclass(slots=True)
class _Series:
    """looks: (moment, busy percent)."""

    looks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    found: Swing | None = None


class Swings:
    """Looks for a swing with every EVERYth sample: none begins or ends sooner."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._series: dict[str, _Series] = defaultdict(_Series)

    def of(self, telemetry: Telemetry) -> Telemetry:
        """The same sample; a device that does not swing has neither value."""
        now_s = self._clock_s()
        devices = tuple(self._judged(device, now_s, telemetry.number % EVERY == 0) for device in telemetry.devices)
        for id in self._series.keys() - {device.id for device in devices}:
            del self._series[id]
        return replace(telemetry, devices=devices)

    def _judged(self, device: DeviceSample, now_s: float, due: bool) -> DeviceSample:
        series, busy = self._series[device.id], device.values.get("busy_percent")
        if busy is None:
            series.looks.clear()
            series.found = None
            return device
        series.looks.append((now_s, busy))
        if due:
            series.found = _swing(series.looks)
        if (found := series.found) is None:
            return device
        values = {"swing_percent": found.depth_percent, "swing_period_s": found.period_s}
        return replace(device, values={**device.values, **values})


def _swing(looks: deque[tuple[float, float]]) -> Swing | None:
    if len(looks) < 2:
        return None
    every_s = (looks[-1][0] - looks[0][0]) / (len(looks) - 1)
    return swing([busy for _, busy in looks], every_s) if every_s > 0 else None
