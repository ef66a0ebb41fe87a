"""Interference that an agent makes to learn from: off by default, rare, short, and over as soon as it hurts."""

import asyncio
import contextlib
import itertools

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import given

from agent import main
from agent.forest.injection import EVERY_S, LASTS_S, MOST, STRENGTH, YOUNG_S, Schedule, inject_rarely, is_bearable
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample

GANG = (1, 1)


def device(ratio: float | None = 1.0, contested: bool = False) -> DeviceSample:
    found = Slowdown(device="d", ratio=ratio or 1.0, low=1.0, high=2.0, confidence=0.9, source=Source.FOREST,
                     contested=contested)  # fmt: skip
    return DeviceSample(id="d", kind="cpu", slowdown=found if ratio is not None else None)


def test_it_is_off_by_default():
    options = main._options().parse_args(["--connect", "tcp://127.0.0.1:1", "--state", "/s"])
    assert options.disturb_to_learn is False


def test_it_costs_a_job_less_than_a_hundredth_of_its_time():
    """Even if a job lost all of the time in which the stranger works."""
    assert STRENGTH * LASTS_S / EVERY_S < 0.01


@given(st.lists(st.floats(0.1, 120.0), min_size=1, max_size=300))
def test_it_never_comes_twice_within_its_rate(pauses):
    schedule, now_s, began = Schedule(-EVERY_S), 0.0, []
    for pause_s in pauses:
        now_s += pause_s
        if schedule.due([GANG], [device()], now_s):
            began.append(now_s)
    assert all(later - earlier >= EVERY_S for earlier, later in itertools.pairwise(began))
    assert began


def test_only_young_jobs_are_disturbed():
    schedule = Schedule(-EVERY_S)
    began = [at for at in range(0, 3 * int(YOUNG_S), 10) if schedule.due([GANG], [device()], float(at))]
    assert began[-1] < YOUNG_S
    assert schedule.due([(2, 1)], [device()], 3 * YOUNG_S), "but another one is"


@pytest.mark.parametrize(
    "devices", [[], [device(None)], [device(MOST)], [device(1.0), device(1.1, contested=True)]], ids=len
)
def test_nobody_is_disturbed_who_is_already_or_of_whom_nothing_is_known(devices):
    assert not is_bearable(devices)
    assert not Schedule(-EVERY_S).due([GANG], devices, 0.0)


def test_an_agent_that_starts_again_and_again_does_not_disturb_more_often():
    """The one before may just have done so."""
    began = []
    for start_s in range(0, 4 * int(EVERY_S), int(EVERY_S / 4)):
        schedule = Schedule(float(start_s))
        began += [at for at in range(start_s, start_s + int(EVERY_S / 4)) if schedule.due([GANG], [device()], at)]
    assert not began
    assert Schedule(0.0).due([GANG], [device()], EVERY_S)


def strangers() -> list[int]:
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line either
            found += [one.pid] if "agent.forest.interferer" in one.cmdline() else []
    return found


@pytest.mark.parametrize("end", ["hurts", "time is up", "cancelled"])
def test_the_stranger_is_gone_when_it_hurts_when_its_time_is_up_and_with_the_agent(end):
    now, ratio = [0.0], [1.0]

    async def scene() -> None:
        task = asyncio.create_task(
            inject_rarely(lambda: {"d": (GANG, device(ratio[0]))}, lambda: now[0], look_s=0.01)
        )  # fmt: skip
        await asyncio.sleep(0)
        now[0] = EVERY_S
        while not strangers():
            await asyncio.sleep(0.01)
        if end == "hurts":
            ratio[0] = MOST
        elif end == "time is up":
            now[0] = EVERY_S + LASTS_S
        else:
            task.cancel()
        while strangers():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scene())
    assert not strangers()
