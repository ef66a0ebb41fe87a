"""Fake and real gangs side by side: an agent started with other devices still answers for what it had begun."""

import asyncio
from collections.abc import Callable, Iterable

from agent.fake import FakeGangs
from agent.gangs import OnReport
from agent.shims import Shims
from scheduler.protocol.messages import Report, Target
from scheduler.protocol.slowdown import Slowdown


class MixedGangs:
    """Sends each call to the kind that has, or by its device will have, the attempt."""

    def __init__(self, fake: FakeGangs, real: Shims, is_fake: Callable[[str], bool]) -> None:
        """is_fake: of a device's id."""
        self._fake, self._real, self._is_fake = fake, real, is_fake

    def adopt(self, on_report: OnReport) -> list[Report]:
        return [*self._fake.adopt(on_report), *self._real.adopt(on_report)]

    def spawn(self, target: Target, secrets: dict[str, str]) -> None:
        (self._fake if self._is_fake(target.device) else self._real).spawn(target, secrets)

    def deliver(self, target: Target) -> None:
        self._of(target.key).deliver(target)

    def tell(self, slowdowns: Iterable[Slowdown]) -> None:
        """Fake members do nothing with it."""
        self._real.tell(slowdowns)

    def forget(self, key: tuple[int, int, int]) -> None:
        self._of(key).forget(key)

    async def close(self) -> None:
        await asyncio.gather(self._fake.close(), self._real.close())

    def _of(self, key: tuple[int, int, int]) -> FakeGangs | Shims:
        return self._fake if self._fake.knows(key) else self._real
