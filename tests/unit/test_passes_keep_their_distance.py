"""Passes follow events at once, unless a gap between them is set."""

from dataclasses import replace

from scheduler.core.passes import take_plan
from scheduler.core.settings import CoreSettings, us
from scheduler.core.state import State
from scheduler.core.timers import next_deadline


def test_no_pass_begins_before_the_gap_is_over_and_a_timer_is_set_for_its_end() -> None:
    settings = replace(CoreSettings(), pass_gap_s=7.0)
    state = State(epoch=1, plan_wanted=True)
    assert take_plan(state, us(100), settings.pass_gap_s) is not None
    state.planning, state.plan_wanted = False, True
    assert take_plan(state, us(106), settings.pass_gap_s) is None
    assert next_deadline(state, us(106), settings) == us(107)
    assert take_plan(state, us(107), settings.pass_gap_s) is not None
