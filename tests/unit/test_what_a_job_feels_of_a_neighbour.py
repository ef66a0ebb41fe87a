"""What a step feels of how much longer its stage computes, and the way back."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agent.forest.felt import at_least_waited, computed, felt
from agent.forest.schema import NODE


@pytest.mark.parametrize(
    ("busy", "wait", "stage", "step"),
    [
        (50.0, 50.0, 2.0, 2.0),  # it runs or waits for its core all the time
        (25.0, 75.0, 4.0, 4.0),
        (3.0, 75.0, 4.0, 1 / 0.91),  # mostly asleep: 3% on the core, 9% waiting for it
        (25.0, 50.0, 2.0, 1 / 0.75),
        (100.0, 0.0, 1.5, 1.5),  # it runs all the time, more slowly
        (90.0, 0.0, 1.5, 1 / 0.7),
        (50.0, 0.0, 2.0, 1 / 0.75),  # half of the time it sleeps, and that takes as long as ever
        (40.0, 50.0, 4.0, 1 / 0.4),  # 40% of the time it waits, and half of its 40% on the core is lost as well
        (4.0, 0.0, 3.6, 1 / (1 - 0.04 * (1 - 1 / 3.6))),  # hardly ever on a core, whatever is said of it
        (50.0, 50.0, 1.2, 2.0),  # what it waited is known
        (400.0, 50.0, 2.0, 2.0),  # several threads
    ],
)
def test_a_job_feels_of_a_neighbour_what_it_would_have_computed_meanwhile(busy, wait, stage, step):
    assert felt(stage, own(busy, wait)) == pytest.approx(step)


@given(st.floats(0, 100), st.floats(0, 99), st.floats(1, 20))
def test_a_job_never_feels_more_than_its_stage_nor_more_than_all_that_it_ran_and_waited(busy, wait, stage):
    step = felt(stage, own(busy, wait))
    assert 1.0 <= step <= max(stage, 1 / (1 - wait / 100)) * (1 + 1e-9)
    ran = min(busy, 100 - wait)
    assert step * (1 - ran / (100 - wait)) <= 1 + 1e-9
    computes = at_least_waited(stage, own(busy, wait))
    assert felt(computes, own(busy, wait)) == pytest.approx(step)
    assert computes >= step * (1 - 1e-9), "a stage is a part of its step"


@given(st.floats(20.5, 100), st.floats(0, 60), st.floats(1, 10))
def test_what_step_times_show_is_learned_as_what_the_stage_felt(busy, wait, inflated):
    values = own(min(busy, 100 - wait), wait)
    stage = inflated / (1 - wait / 100)
    assert computed(felt(stage, values), values) == pytest.approx(stage, rel=1e-6)


def test_step_times_tell_nothing_of_a_stage_that_sleeps_or_of_what_it_cannot_have_lost():
    assert computed(1.5, own(4.0, 0.0)) is None
    assert computed(3.0, own(50.0, 0.0)) is None
    assert computed(1.5, own(None, None)) == 1.5


def own(busy, wait):
    return dict.fromkeys(NODE.names) | {"own_busy_percent": busy, "own_wait_percent": wait}


def test_where_it_is_not_known_how_it_runs_a_job_feels_all_of_it():
    assert felt(1.7, own(None, None)) == 1.7
