"""The agent's own round of samples: for its life, whatever a sample comes to."""

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol

import structlog
from msgspec.structs import replace

from agent.devices import KnownGpus
from agent.telemetry.sampler import EVERY_S, Sampler
from agent.telemetry.swings import Swings
from scheduler.protocol.messages import DeviceInfo, Health, Report, Target
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.telemetry import Telemetry

log = structlog.get_logger()


class Node(Protocol):
    """Whom samples are told to, and who knows what runs."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]: ...

    def take_sample(self, telemetry: Telemetry, health: Health) -> None: ...

    def offer(self, devices: tuple[DeviceInfo, ...]) -> None: ...

    def members(self) -> list[tuple[Target, Report]]: ...

    def tell(self, slowdowns: Iterable[Slowdown]) -> None: ...


class Predictor(Protocol):
    def of(self, telemetry: Telemetry, members: Iterable[tuple[Target, Report]]) -> Telemetry:
        """The same sample with slowdowns."""


async def sense(
    sampler: Sampler, node: Node, memory: KnownGpus, every_s: float = EVERY_S, predictor: Predictor | None = None
) -> None:
    """Until cancelled. GPUs that were not there at first are offered once they are found."""
    said, swings = "", Swings(time.monotonic)
    while True:
        try:
            telemetry = swings.of(sampler.tick())
            if predictor is not None:
                telemetry = _predicted(predictor, telemetry, node)
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


def _predicted(predictor: Predictor, telemetry: Telemetry, node: Node) -> Telemetry:
    """A prediction that fails costs no sample. Gangs are told with every second one."""
    try:
        telemetry = predictor.of(telemetry, node.members())
        if telemetry.number % 2 == 0:
            node.tell(device.slowdown for device in telemetry.devices if device.slowdown is not None)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        log.error("prediction failed", error=why)
        telemetry = replace(telemetry, fallback=f"the prediction failed: {why}. Nothing is known of neighbours")
    return telemetry


def _told(health: Health) -> str:
    reasons = [f"{id}: {why}" for id, why in health.devices.items() if why]
    return "; ".join(filter(None, [health.node, *reasons]))
