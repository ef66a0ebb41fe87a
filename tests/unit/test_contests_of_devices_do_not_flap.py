"""From predictions, one every half second, to what others act on: contested after a while, and never to and fro."""

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agent.forest.contested import BEGINS, ENDS, HELD_S, Contest
from scheduler.protocol.slowdown import Slowdown, Source


def slowdown(ratio: float, source: Source = Source.FOREST) -> Slowdown:
    return Slowdown(device="d", ratio=ratio, low=ratio, high=ratio, confidence=1.0, source=source)


def told(ratios: list[float]) -> list[bool]:
    contest = Contest()
    return [contest.take(slowdown(ratio), at * 0.5).contested for at, ratio in enumerate(ratios)]


def test_a_device_is_contested_once_it_has_been_slow_for_a_while_and_until_it_has_not():
    calm, slow = [1.0] * 10, [1.5] * 40
    found = told([*calm, *slow, *calm * 4])
    begins, ends = found.index(True), len(found) - found[::-1].index(True)
    assert 10 + 2 * HELD_S <= begins <= 10 + 2 * HELD_S + 5
    assert 50 + 2 * HELD_S <= ends <= 50 + 2 * HELD_S + 5


def test_dyn42_a_short_burst_is_ignored():
    assert not any(told([1.0] * 10 + [3.0] * int(2 * HELD_S) + [1.0] * 20))


def test_dyn40_19_percent_are_no_contest_and_20_are():
    assert not any(told([1.19] * 100))
    assert told([1.2] * 100)[-1]


def test_what_sways_between_the_two_bounds_never_flaps():
    between = [BEGINS - 0.01, ENDS + 0.01] * 50
    assert not any(told(between))
    assert all(told([2.0] * 20 + between)[20:])


@given(st.lists(st.floats(1.0, 4.0), min_size=1, max_size=200))
def test_it_never_changes_twice_within_the_time_that_it_is_held(ratios):
    found = told(ratios)
    turns = [at for at in range(1, len(found)) if found[at] != found[at - 1]]
    assert all(later - earlier >= 2 * HELD_S for earlier, later in itertools.pairwise(turns))


@pytest.mark.parametrize("for_s", [6.0, 30.0, 120.0])
def test_a_device_that_goes_to_and_fro_for_hours_is_told_seldom(for_s):
    """Contested for so long, free for as long: everybody hears of each turn."""
    contest, hours = Contest(), 6
    found = [
        contest.take(slowdown(2.0 if at * 0.5 % (2 * for_s) < for_s else 1.0), at * 0.5).contested
        for at in range(hours * 7200)
    ]
    turns = sum(one != other for one, other in itertools.pairwise(found))
    assert 2 <= turns <= 8 * 6 * hours, "eight in ten minutes"


def test_a_sample_now_and_then_of_which_nothing_is_known_hides_no_neighbour():
    contest = Contest()
    found = [contest.lose(at * 0.5) if at % 8 == 7 else contest.take(slowdown(2.0), at * 0.5) for at in range(60)]
    assert all(one is not None and one.contested for one in found[12:])
    later = [contest.lose((60 + at) * 0.5) for at in range(20)]
    assert [one is None for one in later] == [at >= 2 * HELD_S - 1 for at in range(20)]


def test_a_device_that_is_known_and_unknown_by_turns_is_told_seldom_too():
    contest, turns, before = Contest(), 0, False
    for at in range(6 * 7200):
        found = contest.take(slowdown(2.0), at * 0.5) if at % 60 < 40 else contest.lose(at * 0.5)
        contested = found is not None and found.contested
        turns, before = turns + (contested != before), contested
    assert turns <= 8 * 6 * 6


def test_another_source_is_not_mixed_with_the_old_one():
    contest = Contest()
    for at in range(5):
        contest.take(slowdown(3.0), at * 0.5)
    assert contest.take(slowdown(1.0, Source.OBSERVED), 3.0).ratio == 1.0
