"""From the `--devices` option to the devices that a node offers, and who reads them."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.devices.cpu import CpuSlots, usable_cores
from agent.devices.nvml import Nvml, no_owner
from agent.devices.provider import Found, Provider
from agent.devices.scripted import Script, Scripted
from agent.folders import write_durably
from agent.watched import Watched
from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.telemetry import Process

FIRST_FIND_S = 10.0
_NAMESPACE = uuid.UUID("6a637464-0000-5000-8000-6a6f62746f70")
Owner = Callable[[int, int | None], Process]


class BadDevices(ValueError):
    """The --devices option is not `nvml`, `cpu:N`, `fake:N` or `fake:N:KIND`, N from 1 to 1024."""


@dataclass(frozen=True, slots=True)
class Offer:
    """trouble: why the whole node has no device that works, empty where it has."""

    devices: tuple[DeviceInfo, ...]
    provider: Provider
    trouble: str = ""


def offer_devices(
    option: str | None, node: str, machine: str, memory: "KnownGpus", owner: Owner = no_owner,
    script: Script | None = None,
) -> Offer:  # fmt: skip
    """The devices of one node. option None: the GPUs that NVML finds, else one CPU device a core that it may use.

    GPUs that were here before stay offered, as unhealthy, while NVML cannot find any. Raises BadDevices. CPU and fake
    devices get ids that stay the same over restarts of the node.
    """
    if option in (None, "nvml"):
        offer = _gpus(Nvml(owner), memory)
        if offer.devices or offer.trouble:
            return offer
        if option is not None:
            raise BadDevices("NVML finds no GPU here; try --devices cpu:2 or --devices fake:8")
        return _slots("cpu", len(usable_cores()), "cpu", node, machine)
    what, _, rest = (option or "").partition(":")
    count, _, kind = rest.partition(":")
    known = (what == "cpu" and not kind) or what == "fake"
    if not known or not count.isascii() or not count.isdigit() or not 1 <= int(count) <= 1024:
        raise BadDevices(f"--devices {option!r}: {BadDevices.__doc__}")
    return _slots(what, int(count), f"fake-{kind}" if kind else what, node, machine, script)


def _gpus(nvml: Nvml, memory: "KnownGpus") -> Offer:
    """Waits only so long for a driver that hangs."""
    looking = Watched(nvml.find, "first-find")
    looking.ask()
    looking.wait(FIRST_FIND_S)
    found = looking.newest or Found(trouble="NVML does not answer")
    if found.devices:
        memory.keep(found.devices)
        return Offer(found.devices, nvml)
    known = memory.gpus()
    if not known and not found.here:
        return Offer((), nvml)
    reason = found.trouble or "NVML no longer finds it"
    unwell = tuple(msgspec.structs.replace(gpu, healthy=False, reason=reason) for gpu in known)
    return Offer(unwell, nvml, found.trouble)


def _slots(what: str, count: int, kind: str, node: str, machine: str, script: Script | None = None) -> Offer:
    devices = tuple(
        DeviceInfo(
            id=f"{what}-{uuid.uuid5(_NAMESPACE, f'{machine}/{node}/{what}/{index}')}",
            kind=kind, index=index, name=f"{what} {index}",
        )
        for index in range(count)
    )
    return Offer(devices, CpuSlots(devices) if what == "cpu" else Scripted(devices, script))


class KnownGpus:
    """gpus.json in the state folder: the GPUs that were found last. None is kept where there is no folder."""

    def __init__(self, state: Path | None) -> None:
        self._file = state / "gpus.json" if state is not None else None

    def keep(self, gpus: tuple[DeviceInfo, ...]) -> None:
        if self._file is not None and gpus != self.gpus():
            write_durably(self._file, msgspec.json.encode(gpus))

    def gpus(self) -> tuple[DeviceInfo, ...]:
        """Empty where none were found yet, or the file is none."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=tuple[DeviceInfo, ...]) if self._file else ()
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return ()
