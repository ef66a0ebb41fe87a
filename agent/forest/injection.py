"""Mild interference on purpose beside young jobs, so that the node's forest learns soon. Off unless it is asked for.

One stranger at a time, on a part of one core, for LASTS_S, at most once in EVERY_S and only beside CPU jobs that have
trained for less than YOUNG_S. It stops at once where a job takes MOST times as long, or somebody else disturbs it.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from agent.forest.interferer import KINDS
from scheduler.protocol.telemetry import DeviceSample

log = structlog.get_logger()

STRENGTH = 0.25
LASTS_S, EVERY_S, YOUNG_S = 10.0, 600.0, 3600.0
MOST = 1.2
LOOK_S = 0.5
Gang = tuple[int, int]


@dataclass(slots=True)
class Schedule:
    """When the next may begin. last_s: when the last did; for an agent that has just started, its start, since the one
    before may just have disturbed them. seen_s: since when each gang has trained here."""

    last_s: float
    seen_s: dict[Gang, float] = field(default_factory=dict)

    def due(self, gangs: Iterable[Gang], devices: Iterable[DeviceSample], now_s: float) -> bool:
        """gangs: that train on CPU devices here. devices: their newest samples."""
        present = set(gangs)
        self.seen_s = {gang: self.seen_s.get(gang, now_s) for gang in present}
        young = any(now_s - seen_s < YOUNG_S for seen_s in self.seen_s.values())
        if not (young and now_s - self.last_s >= EVERY_S and is_bearable(devices)):
            return False
        self.last_s = now_s
        return True


def is_bearable(devices: Iterable[DeviceSample]) -> bool:
    """Nobody is slowed down much, and that is known."""
    slowdowns = [device.slowdown for device in devices]
    return bool(slowdowns) and all(one is not None and not one.contested and one.ratio < MOST for one in slowdowns)


async def inject_rarely(
    look: Callable[[], Mapping[str, tuple[Gang, DeviceSample]]], clock_s: Callable[[], float] = time.monotonic,
    look_s: float = LOOK_S,
) -> None:  # fmt: skip
    """Until cancelled. look: of each CPU device with a training member, the gang and the newest sample."""
    schedule, kinds = Schedule(clock_s()), itertools.cycle(KINDS)
    while True:
        await asyncio.sleep(look_s)
        found = look()
        if schedule.due({gang for gang, _ in found.values()}, [sample for _, sample in found.values()], clock_s()):
            await _inject(next(kinds), look, clock_s, look_s)


async def _inject(
    kind: str, look: Callable[[], Mapping[str, tuple[Gang, DeviceSample]]], clock_s: Callable[[], float], look_s: float
) -> None:
    log.info("interference on purpose", kind=kind, strength=STRENGTH, seconds=LASTS_S)
    until_s = clock_s() + LASTS_S
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "agent.forest.interferer", kind, f"{STRENGTH:g}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while child.returncode is None and clock_s() < until_s:
            await asyncio.sleep(look_s)
            if not is_bearable(sample for _, sample in look().values()):
                break
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
