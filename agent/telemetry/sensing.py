"""The agent's own round of samples: for its life, whatever a sample comes to."""

import asyncio
from typing import Protocol

import structlog

from agent.devices import KnownGpus
from agent.telemetry.sampler import EVERY_S, Sampler
from scheduler.protocol.messages import DeviceInfo, Health
from scheduler.protocol.telemetry import Telemetry

log = structlog.get_logger()


class Node(Protocol):
    """Whom samples are told to."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]: ...

    def take_sample(self, telemetry: Telemetry, health: Health) -> None: ...

    def offer(self, devices: tuple[DeviceInfo, ...]) -> None: ...


async def sense(sampler: Sampler, node: Node, memory: KnownGpus, every_s: float = EVERY_S) -> None:
    """Until cancelled. GPUs that were not there at first are offered once they are found."""
    said = ""
    while True:
        try:
            telemetry = sampler.tick()
            node.take_sample(telemetry, health := sampler.health())
            if (now := _told(health)) != said:
                log.info("devices", unwell=now or "none")
                said = now
            if {device.id for device in sampler.offered} != {device.id for device in node.devices}:
                node.offer(sampler.offered)
                memory.keep(sampler.offered)
        except Exception as error:  # to measure must not end what runs
            log.error("sample failed", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(every_s)


def _told(health: Health) -> str:
    reasons = [f"{id}: {why}" for id, why in health.devices.items() if why]
    return "; ".join(filter(None, [health.node, *reasons]))
