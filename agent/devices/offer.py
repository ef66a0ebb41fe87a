"""From the `--devices` option to the devices a node offers."""

import os
import uuid

from agent.devices.nvml import find_gpus
from scheduler.protocol.messages import DeviceInfo

_NAMESPACE = uuid.UUID("6a637464-0000-5000-8000-6a6f62746f70")


class BadDevices(ValueError):
    """The --devices option is not `nvml`, `cpu:N`, `fake:N` or `fake:N:KIND`, N from 1 to 1024."""


def offer_devices(option: str | None, node: str, machine: str) -> tuple[DeviceInfo, ...]:
    """The devices of one node. option None: the GPUs that NVML finds, else one CPU device a core.

    Raises BadDevices. CPU and fake devices get ids that stay the same over restarts of the node.
    """
    if option is None:
        return find_gpus() or _slots("cpu", os.cpu_count() or 1, "cpu", node, machine)
    what, _, rest = option.partition(":")
    if what == "nvml" and not rest:
        gpus = find_gpus()
        if not gpus:
            raise BadDevices("NVML finds no GPU here; try --devices cpu:2 or --devices fake:8")
        return gpus
    count, _, kind = rest.partition(":")
    known = (what == "cpu" and not kind) or what == "fake"
    if not known or not count.isascii() or not count.isdigit() or not 1 <= int(count) <= 1024:
        raise BadDevices(f"--devices {option!r}: {BadDevices.__doc__}")
    return _slots(what, int(count), f"fake-{kind}" if kind else what, node, machine)


def _slots(what: str, count: int, kind: str, node: str, machine: str) -> tuple[DeviceInfo, ...]:
    return tuple(
        DeviceInfo(
            id=f"{what}-{uuid.uuid5(_NAMESPACE, f'{machine}/{node}/{what}/{index}')}",
            kind=kind, index=index, name=f"{what} {index}",
        )
        for index in range(count)
    )
