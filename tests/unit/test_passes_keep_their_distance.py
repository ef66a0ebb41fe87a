"""Passes follow events at once, unless a gap between them is set."""

from dataclasses import replace

import pytest

from policies.model.decision import Decisions
from scheduler.core.events import Planned, Submit, Tick
from scheduler.core.passes import AGAIN_S, take_plan
from scheduler.core.settings import CoreSettings, us
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.core.timers import next_deadline
from scheduler.protocol.spec import JobSpec


def test_no_pass_begins_before_the_gap_is_over_and_a_timer_is_set_for_its_end() -> None:
    settings = replace(CoreSettings(), pass_gap_s=7.0)
    state = State(epoch=1, plan_wanted=True)
    assert take_plan(state, us(100), settings.pass_gap_s) is not None
    state.planning, state.plan_wanted = False, True
    assert take_plan(state, us(106), settings.pass_gap_s) is None
    assert next_deadline(state, us(106), settings) == us(107)
    assert take_plan(state, us(107), settings.pass_gap_s) is not None


@pytest.mark.parametrize(("wish_s", "after_s"), [(4.0, 4.0), (0.0, AGAIN_S)])
def test_a_policy_that_wants_to_be_asked_again_is_once(wish_s: float, after_s: float) -> None:
    settings, state, begun = CoreSettings(), State(epoch=1), us(100)
    spec = JobSpec(name="t", entrypoint="a:b", workdir="/")
    step(state, Submit(request=0, spec=spec, spec_key="k", user="u"), begun, settings)
    assert take_plan(state, begun) is not None
    step(state, Planned(decisions=Decisions(1, again_in_s=wish_s)), begun, settings)
    due = next_deadline(state, begun, settings)
    assert due == begun + us(after_s)
    step(state, Tick(), due - 1, settings)
    assert not state.plan_wanted
    step(state, Tick(), due, settings)
    assert state.plan_wanted
    assert next_deadline(state, due, settings) > due, "nothing is due again before the pass"
    assert take_plan(state, due) is not None
    step(state, Planned(decisions=Decisions(1)), due, settings)
    assert next_deadline(state, due, settings) == due + us(settings.replan_s)


def test_a_job_that_may_begin_is_due_once_though_the_next_pass_is_not() -> None:
    settings, state, begun = CoreSettings(pass_gap_s=30.0), State(epoch=1), us(100)
    spec = JobSpec(name="t", entrypoint="a:b", workdir="/", begin_us=us(105))
    step(state, Submit(request=0, spec=spec, spec_key="k", user="u"), begun, settings)
    assert take_plan(state, begun) is not None
    assert next_deadline(state, begun, settings) == us(105), "while a pass is under way"
    step(state, Planned(decisions=Decisions(1)), begun, settings)
    assert next_deadline(state, us(104), settings) == us(105)
    assert next_deadline(state, us(106), settings) == us(106), "late, but nobody has looked yet"
    step(state, Tick(), us(106), settings)
    assert state.plan_wanted
    assert next_deadline(state, us(106), settings) > us(106), "nothing is due again before the pass"
