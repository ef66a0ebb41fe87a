"""A daemon's heap is walked when the clock says so, and never because it has grown."""

import asyncio
import contextlib
import gc
import weakref

from scheduler.garbage import NEVER, collect_by_the_clock


class Knot:
    """Refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_cycles_go_when_the_clock_says_so_and_pythons_rule_returns_afterwards() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(collect_by_the_clock(every_s=0.0))
        await asyncio.sleep(0)
        assert gc.get_threshold()[2] == NEVER
        knot = weakref.ref(Knot())
        async with asyncio.timeout(10):
            while knot() is not None:
                await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    asyncio.run(scenario())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() <= frozen
