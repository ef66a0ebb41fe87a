"""Mean and variance over 100 consecutive steps: what is fast on average may still be unsteady."""

import pytest

from worker.steadiness import WHOLE, Steadiness, StepTimes


def measured(times_s: list[float]) -> list[Steadiness]:
    collected = StepTimes()
    found = [collected.take(one) for one in times_s]
    return [one for one in found if one is not None]


def test_each_hundred_steps_are_measured_without_the_one_that_warms_up() -> None:
    (first, second) = measured([9.0, *[1.0] * WHOLE, *[2.0, 4.0] * (WHOLE // 2)])
    assert (first.mean_s, first.variance_s2) == (1.0, 0.0)
    assert (second.mean_s, second.variance_s2) == (3.0, 1.0)


def test_too_few_steps_tell_nothing() -> None:
    assert measured([1.0] * WHOLE) == []


def test_injected_jitter_is_told_and_steady_steps_are_not() -> None:
    steady = Steadiness(mean_s=0.1, variance_s2=0.0001)
    jittery = Steadiness(mean_s=0.1, variance_s2=0.01)
    assert steady.variation == pytest.approx(0.1)
    assert steady.told == ""
    assert "vary by 100% around 0.1 s" in jittery.told


def test_a_job_of_short_steps_is_not_told_every_hundred_of_them() -> None:
    collected, told = StepTimes(), 0
    times_s = [0.001, 0.005] * 50_000  # 300 s
    for one in times_s:
        if (found := collected.take(one)) is not None:
            assert found.told
            told += collected.word(found) != ""
    assert told == 1
    for one in [0.001, 0.005] * (10 * WHOLE):
        if (found := collected.take(one)) is not None:
            told += collected.word(found) != ""
    assert told == 2
