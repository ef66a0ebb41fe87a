"""What a node measures of its devices and its network: one sample, the newest. What is missing is null with a reason.

Names end in their units: `_percent` (0 to 100), `_bytes`, `_bytes_per_s`, `_per_s`, `_w` (watts), `_hz`, `_c` (degrees
Celsius), `_s`. A name without one is a count.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from scheduler.protocol.slowdown import Slowdown

_T = TypeVar("_T", bound=msgspec.Struct)


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One that uses a device. whose: job (one of ours), other (another's), or unknown, where that cannot be seen.

    draws: it has only a graphics context, as a desktop has.
    """

    pid: int
    whose: str
    job: int | None = None
    name: str = ""
    memory_bytes: int | None = None
    draws: bool = False


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True):
    """values: by name; null where unknown, and then `missing` has the reason under the same name.

    bus: PCI bus id. parent: of a MIG device its GPU's id. age_s: since the values were read; null before the first
    reading. throttled: what holds its clocks down. processes: null where they cannot be listed. slowdown: null where
    nothing is known of it.
    """

    id: str
    kind: str = ""
    bus: str = ""
    parent: str = ""
    age_s: float | None = None
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    throttled: tuple[str, ...] | None = None
    processes: tuple[Process, ...] | None = None
    slowdown: Slowdown | None = None


class InterfaceSample(msgspec.Struct, frozen=True, kw_only=True):
    """kind: loopback, virtual or physical. speed_bytes_per_s: the link's own, null where it has none."""

    name: str
    kind: str
    up: bool
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """number: of the sample since the agent's start. late: readings that were not there in time, since then.

    left_out: devices and interfaces for which there was no room. host: of the whole machine. predictor: how slowdowns
    are known here; fallback: why not by the model that this node has, empty where it is so, or there is none.
    """

    number: int
    devices: tuple[DeviceSample, ...] = ()
    interfaces: tuple[InterfaceSample, ...] = ()
    host: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    late: int = 0
    left_out: int = 0
    predictor: str = ""
    fallback: str = ""


MAX_BYTES = 256 * 1024
_MAX_PROCESSES, _MAX_TEXT, _MAX_SAID = 32, 120, 500

_encoder = msgspec.msgpack.Encoder()


def bounded(telemetry: Telemetry, most_bytes: int = MAX_BYTES) -> Telemetry:
    """At most so many bytes on the wire: what has no room is left out, interfaces first, and counted."""
    telemetry = msgspec.structs.replace(
        telemetry, predictor=telemetry.predictor[:_MAX_SAID], fallback=telemetry.fallback[:_MAX_SAID]
    )
    devices, interfaces = [_short(device) for device in telemetry.devices], list(telemetry.interfaces)
    room = most_bytes - len(_encoder.encode(msgspec.structs.replace(telemetry, devices=(), interfaces=()))) - 64
    kept_devices = _fitting(devices, room)
    room -= sum(len(_encoder.encode(device)) for device in kept_devices)
    kept_interfaces = _fitting(interfaces, room)
    left_out = len(devices) - len(kept_devices) + len(interfaces) - len(kept_interfaces)
    return msgspec.structs.replace(
        telemetry, devices=tuple(kept_devices), interfaces=tuple(kept_interfaces),
        left_out=telemetry.left_out + left_out,
    )


def _short(device: DeviceSample) -> DeviceSample:
    processes = device.processes
    return msgspec.structs.replace(
        device,
        processes=processes[:_MAX_PROCESSES] if processes is not None else None,
        missing={name: reason[:_MAX_TEXT] for name, reason in device.missing.items()},
    )


def _fitting(items: Sequence[_T], room: int) -> list[_T]:
    kept = []
    for item in items:
        room -= len(_encoder.encode(item))
        if room < 0:
            break
        kept.append(item)
    return kept
