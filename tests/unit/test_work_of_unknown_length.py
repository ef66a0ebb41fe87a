"""Jobs that do not say how long they are: what finished jobs like them took tells what is to be expected."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.jct.gittins import expected_remaining, gittins_remaining
from policies.jct.work import UNSEEN_GPU_S
from policies.registry import find
from scheduler.core.past_work import PastWork
from scheduler.core.snapshot import take_snapshot
from scheduler.simulator.simulate import Simulation
from scheduler.simulator.workload import Nodes, SimulatedJob, Workload, rigid

LENGTHS = st.lists(st.floats(1.0, 1e6), min_size=4, max_size=30).map(sorted)


def test_the_index_is_that_of_the_definition() -> None:
    """Half of the jobs take 10, half 1,000, and the one that none has seen takes 2,000."""
    lengths = [10.0] * 5 + [1000.0] * 5
    assert gittins_remaining(lengths, 0.0) == pytest.approx((5 * 10 + 6 * 10) / 5)
    assert gittins_remaining(lengths, 10.0) == pytest.approx((5 * 990 + 1990) / 6), "all six together are the best bet"
    assert gittins_remaining(lengths, 1000.0) == pytest.approx(1000.0)


@given(LENGTHS, st.floats(0.0, 2e6))
def test_expected_work_is_positive_and_no_more_than_a_job_longer_than_all_others(
    lengths: list[float], attained: float
) -> None:
    told = gittins_remaining(lengths, attained)
    assert told is not None
    assert 0 < told <= 2 * max(lengths[-1], attained)


@given(st.floats(0.0, 1e6))
def test_without_a_history_as_much_again_is_to_come(attained: float) -> None:
    assert expected_remaining((), attained, UNSEEN_GPU_S) == max(UNSEEN_GPU_S, attained)


def test_short_work_is_expected_where_work_was_short_and_long_where_a_job_has_outlived_it() -> None:
    short = (50.0, 60.0, 70.0, 80.0)
    assert expected_remaining(short, 0.0, 600.0) < expected_remaining((), 0.0, 600.0)
    assert expected_remaining(short, 5_000.0, 600.0) == pytest.approx(5_000.0)


def simulation() -> Simulation:
    """Five short jobs of one name have ended, and then a longer one of another; two wait that nobody knows."""
    menu = rigid(1, [Nodes(2, 4)], 0.0)
    jobs = [SimulatedJob(f"short-{k}", 0.0, "one", 30.0 + k, 1) for k in range(5)]
    jobs += [SimulatedJob("long-1", 0.0, "one", 2_000.0, 1)]
    played = Simulation(Workload(tuple(jobs), {"one": menu}), [Nodes(2, 4)], find("jct"), 10.0, exact=False)
    played.play()
    return played


def test_history_is_of_the_same_name_then_of_the_team_then_of_all() -> None:
    state = simulation().state
    past, known = PastWork.of(state), state.jobs[1]
    named = replace(known, spec=_named(known.spec, "short-99"))
    assert past.like(named) == pytest.approx((30.0, 31.0, 32.0, 33.0, 34.0))
    stranger = replace(known, user="somebody", spec=_named(known.spec, "other"))
    assert past.like(stranger)[-1] == pytest.approx(2_000.0)
    assert len(past.like(replace(stranger, spec=_named(known.spec, "other", team="new")))) == 6


def _named(spec, name, **more):
    from msgspec.structs import replace as changed

    return changed(spec, name=name, **more)


def test_policies_are_told_of_history_only_where_a_job_does_not_declare_its_work() -> None:
    played = simulation()
    played.live[played.state.counters.job] = "late"
    played._submit(SimulatedJob("short-7", 0.0, "one", 30.0, 1))
    (view,) = take_snapshot(played.state, played.now).jobs
    assert not view.work_known
    assert view.past_gpu_s == pytest.approx((30.0, 31.0, 32.0, 33.0, 34.0))
