"""The agent's round of samples: it tells its node each one, and outlives one that fails."""

import asyncio

from agent.devices import KnownGpus
from agent.devices.scripted import Scripted
from agent.telemetry.sampler import Sampler
from agent.telemetry.sensing import sense
from scheduler.protocol.messages import DeviceInfo, Health
from scheduler.protocol.telemetry import Telemetry

DEVICE = DeviceInfo(id="GPU-a", kind="H200", index=0)


class Node:
    """What it was told. devices: what it offers."""

    def __init__(self) -> None:
        self.devices: tuple[DeviceInfo, ...] = ()
        self.samples: list[Telemetry] = []

    def take_sample(self, telemetry: Telemetry, health: Health) -> None:
        self.samples.append(telemetry)

    def offer(self, devices: tuple[DeviceInfo, ...]) -> None:
        self.devices = devices


class Failing(Sampler):
    """Its first two samples fail."""

    failures = 2

    def tick(self) -> Telemetry:
        if self.failures:
            self.failures -= 1
            raise OSError("too many open files")
        return super().tick()


def test_a_sample_that_fails_ends_nothing_and_new_devices_are_offered_and_remembered(tmp_path):
    node, memory = Node(), KnownGpus(tmp_path)

    async def scene() -> None:
        sampling = asyncio.create_task(sense(Failing(Scripted((DEVICE,)), (DEVICE,)), node, memory, every_s=0.0))
        while len(node.samples) < 3:
            assert not sampling.done()
            await asyncio.sleep(0)
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)

    asyncio.run(scene())
    assert [sample.number for sample in node.samples[:3]] == [1, 2, 3]
    assert node.devices == memory.gpus() == (DEVICE,)
