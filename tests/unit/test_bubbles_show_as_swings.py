"""BUB-02: a pipeline's bubbles show as utilisation that swings with its steps, and nothing else is taken for them."""

import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agent.telemetry.swings import Swings
from policies.swings import is_of_steps, swing
from scheduler.protocol.telemetry import DeviceSample, Telemetry

EVERY_S = 0.5
NOISE = random.Random(7)


def pipeline(period_s: float, busy: float = 0.6, noise: float = 0.0, seconds: float = 60.0) -> list[float]:
    """Computing for a part of each step, and waiting for the rest of it: as means over a sample's time, in percent."""
    def until(at_s: float) -> float:
        whole, rest = divmod(at_s, period_s)
        return whole * busy * period_s + min(rest, busy * period_s)

    return [
        100 * (until(at * EVERY_S + EVERY_S) - until(at * EVERY_S)) / EVERY_S + NOISE.uniform(-noise, noise)
        for at in range(round(seconds / EVERY_S))
    ]  # fmt: skip


@pytest.mark.parametrize("period_s", [1.7, 2.0, 3.1, 5.0, 12.5])
@pytest.mark.parametrize("noise", [0.0, 15.0])
def test_bub02_the_period_of_the_steps_is_found(period_s: float, noise: float) -> None:
    found = swing(pipeline(period_s, noise=noise), EVERY_S)
    assert found is not None
    assert found.period_s == pytest.approx(period_s, rel=0.05)
    assert found.depth_percent > 50
    assert is_of_steps(found.period_s, period_s, EVERY_S)


@given(st.lists(st.floats(0, 100), min_size=120, max_size=120, unique=True).map(sorted))
def test_what_only_rises_does_not_swing(series: list[float]) -> None:
    assert swing(series, EVERY_S) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_swing(seed: int) -> None:
    chooser = random.Random(seed)
    assert swing([chooser.uniform(0, 100) for _ in range(120)], EVERY_S) is None


def test_a_steady_or_slightly_trembling_device_does_not_swing() -> None:
    assert swing([97.0] * 120, EVERY_S) is None
    assert swing([90.0 + 5 * math.sin(at) for at in range(120)], EVERY_S) is None


def test_a_single_dip_is_no_swing() -> None:
    assert swing([95.0] * 50 + [10.0] * 20 + [95.0] * 50, EVERY_S) is None


def test_too_few_samples_tell_nothing() -> None:
    assert swing(pipeline(2.0, seconds=10), EVERY_S) is None


def test_a_swing_of_another_period_is_not_that_of_the_steps() -> None:
    assert not is_of_steps(4.0, 1.5, EVERY_S)
    assert not is_of_steps(4.0, 5e-324, EVERY_S), "no step is so short, whatever its job says"
    assert not is_of_steps(4.0, 0.25, EVERY_S), "each sample sees two whole steps"


def test_steps_shorter_than_two_samples_are_known_by_what_sampling_makes_of_them() -> None:
    """0.6 s, looked at every 0.5 s, comes back in the same place every 3 s."""
    assert is_of_steps(3.0, 0.6, EVERY_S)


def test_an_agent_tells_of_a_device_that_swings_and_of_no_other() -> None:
    moments = iter(range(10_000))
    swings = Swings(lambda: next(moments) * EVERY_S)
    for number, busy in enumerate(pipeline(4.0)):
        devices = (
            DeviceSample(id="swings", values={"busy_percent": busy}), DeviceSample(id="hidden", values={}),
            DeviceSample(id="steady", values={"busy_percent": 95.0}),
        )  # fmt: skip
        told = swings.of(Telemetry(number=number, devices=devices))
    found = {device.id: device.values for device in told.devices}
    assert found["swings"]["swing_period_s"] == pytest.approx(4.0, rel=0.05)
    assert found["steady"] == {"busy_percent": 95.0}
    assert found["hidden"] == {}
