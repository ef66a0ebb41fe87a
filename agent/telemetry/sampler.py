"""Samples of all devices and the network, taken without ever waiting: what hangs is told as missing, and as unwell."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from agent.devices.provider import Found, Provider, Reading
from agent.telemetry.host import NAMES as HOST_NAMES
from agent.telemetry.host import Host
from agent.telemetry.network import Network
from agent.telemetry.rates import Rates
from agent.watched import Watched
from scheduler.protocol.messages import DeviceInfo, Health
from scheduler.protocol.plausible_telemetry import plausible_telemetry
from scheduler.protocol.telemetry import DeviceSample, Telemetry

EVERY_S = 0.5
FIND_S = 10.0
DEADLINE_S = 5.0
FOREIGN_S = 5.0
FOREIGN_SHARE, FOREIGN_BYTES = 0.05, 1 << 30
"""Of its memory, from which on a stranger counts; in bytes where nobody tells how much it has, as where it is the
machine's."""


@dataclass(slots=True)
class _Device:
    """look: of a device that may hang. busy_s: for how long its present look has lasted. foreign_s: since when somebody
    else has used much of it, infinity where nobody does."""

    info: DeviceInfo
    look: Watched[Reading] | None
    rates: Rates = field(default_factory=Rates)
    reading: Reading | None = None
    read_at_s: float = 0.0
    sample: DeviceSample | None = None
    was_late: bool = False
    foreign_s: float = math.inf


class Sampler:
    """The newest sample, and what it says of each device's health. `tick` is called every EVERY_S on one thread."""

    def __init__(
        self, provider: Provider, offered: Iterable[DeviceInfo], trouble: str = "",
        is_held: Callable[[str], bool] = lambda id: False, clock_s: Callable[[], float] = time.monotonic,
        host: Host | None = None, network: Network | None = None, deadline_s: float = DEADLINE_S,
    ) -> None:  # fmt: skip
        """offered, trouble: as first found. is_held: whether one of our gangs is on the device of this id."""
        self._provider, self._is_held, self._clock_s, self._deadline_s = provider, is_held, clock_s, deadline_s
        self._host, self._network = host or Host(clock_s=clock_s), network or Network(clock_s=clock_s)
        self._finder = Watched(provider.find, "find", clock_s) if provider.blocks else None
        self._found: Found | None = None
        self._trouble = trouble
        self._asked_s = clock_s()
        self._devices: dict[str, _Device] = {}
        for info in offered:
            self._add(info)
        self._late = self._number = 0

    @property
    def offered(self) -> tuple[DeviceInfo, ...]:
        """What was offered first and whatever was found since then: it may be away now."""
        return tuple(device.info for device in self._devices.values())

    def tick(self) -> Telemetry:
        """Take what has been read since the last one, and have everything read anew."""
        now_s = self._clock_s()
        self._number += 1
        self._find(now_s)
        samples = [self._look(device, now_s) for device in self._devices.values()]
        found, missing = self._host.read()
        tcp, no_tcp = self._network.tcp()
        host: dict[str, float | None] = {**dict.fromkeys((*HOST_NAMES, *no_tcp)), **found, **tcp}
        telemetry = Telemetry(
            number=self._number, devices=tuple(samples), interfaces=self._network.interfaces(), late=self._late,
            host=host, missing=missing | no_tcp,
        )
        return plausible_telemetry(telemetry)

    def health(self) -> Health:
        """By the newest sample."""
        now_s = self._clock_s()
        reasons = {id: self._why_unwell(device, now_s) for id, device in self._devices.items()}
        return Health(node=self._trouble, devices=reasons)

    @property
    def busy(self) -> bool:
        """Whether some device is being read right now."""
        return any(device.look is not None and device.look.busy_s() > 0 for device in self._devices.values())

    def close(self) -> None:
        for device in self._devices.values():
            if device.look is not None:
                device.look.close()
        if self._finder is not None:
            self._finder.close()

    def _add(self, info: DeviceInfo) -> None:
        work = partial(self._provider.read, info.id)
        look = Watched(work, f"read-{info.index}", self._clock_s) if self._provider.blocks else None
        self._devices[info.id] = _Device(info, look)

    def _find(self, now_s: float) -> None:
        """New devices are added; those that are away stay, and are unwell."""
        finder = self._finder
        if finder is None:
            return
        if finder.busy_s() == 0 and finder.newest is not None and finder.newest is not self._found:
            self._found = finder.newest
            self._trouble = self._found.trouble
            for info in self._found.devices:
                if info.id in self._devices:
                    self._devices[info.id].info = info
                else:
                    self._add(info)
        if now_s - self._asked_s >= FIND_S and finder.ask():
            self._asked_s = now_s

    def _look(self, device: _Device, now_s: float) -> DeviceSample:
        look = device.look
        if look is None:
            self._take(device, self._provider.read(device.info.id), now_s)
        else:
            if look.busy_s() == 0:
                if look.newest is not None and look.newest is not device.reading:
                    self._take(device, look.newest, look.newest_at)
                device.was_late = False
                look.ask()
            elif look.busy_s() > self._deadline_s:
                self._late += not device.was_late
                device.was_late = True
                return self._without(device.info, f"it has not answered for {look.busy_s():.0f} s")
        if device.sample is None:
            return self._without(device.info, "not read yet")
        return replace(device.sample, age_s=now_s - device.read_at_s)

    def _take(self, device: _Device, reading: Reading, at_s: float) -> None:
        info = device.info
        if reading is device.reading and not reading.counters:
            device.read_at_s = at_s
            return
        rates, no_rates = device.rates.of(reading.counters, at_s)
        missing = reading.missing | no_rates
        values: dict[str, float | None] = {**reading.values, **rates, **dict.fromkeys(no_rates)}
        for name in self._provider.names:
            if name not in values:
                values[name] = None
                missing.setdefault(name, reading.unwell or "not read")
        for name in ("throttled", "processes"):
            if getattr(reading, name) is None:
                missing.setdefault(name, reading.unwell or "not measured for such a device")
        device.sample = DeviceSample(
            id=info.id, kind=info.kind, bus=reading.bus, parent=reading.parent, values=values, missing=missing,
            throttled=reading.throttled, processes=reading.processes,
        )
        device.reading, device.read_at_s = reading, at_s
        device.foreign_s = min(device.foreign_s, at_s) if self._foreign(device) else math.inf

    def _without(self, info: DeviceInfo, why: str) -> DeviceSample:
        names = self._provider.names
        missing = dict.fromkeys((*names, "throttled", "processes"), why)
        return DeviceSample(id=info.id, kind=info.kind, values=dict.fromkeys(names), missing=missing)

    def _why_unwell(self, device: _Device, now_s: float) -> str:
        busy_s = device.look.busy_s() if device.look is not None else 0.0
        if busy_s > self._deadline_s:
            return "the driver does not answer for it"
        if self._trouble:
            return self._trouble
        if device.reading is not None and device.reading.unwell:
            return device.reading.unwell
        if self._found is not None and all(info.id != device.info.id for info in self._found.devices):
            return "NVML no longer finds it"
        return device.info.reason or self._why_foreign(device, now_s)

    def _foreign(self, device: _Device) -> bool:
        """Whether somebody who is none of our jobs computes on it, with a good part of its memory."""
        assert device.reading is not None
        total = device.reading.values.get("memory_total_bytes") or device.info.memory_bytes
        least = FOREIGN_SHARE * total if total else FOREIGN_BYTES
        strangers = [one for one in device.reading.processes or () if one.whose != "job" and not one.draws]
        return any(one.memory_bytes is None or one.memory_bytes >= least for one in strangers)

    def _why_foreign(self, device: _Device, now_s: float) -> str:
        """Such a device is given to no other job. While a gang of ours is on it nothing is said: it goes on."""
        if now_s - device.foreign_s < FOREIGN_S or self._is_held(device.info.id):
            return ""
        return "a process that belongs to none of our jobs uses it"
