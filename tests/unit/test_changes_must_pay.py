"""A change of cut is taken if it pays under what disturbs now, and nothing is moved that costs more than it gains."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cost import LayerCosts
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan, split
from worker.adapt.candidates import Terms, best_change, bounds_of
from worker.adapt.estimate import BASELINE, RECENT, WARM_UP, Estimator
from worker.adapt.forecast import Forecast
from worker.adapt.meter import StageTimes
from worker.adapt.pricing import moved_bytes, pays, step_s
from worker.adapt.situation import Ground, Situation
from worker.adapt.statistics import Memory, Reading

LAYERS, SIZE = 10, 1


def ground(parameter_bytes: int = 1000, link: Link | None = None) -> Ground:
    layer = LayerProfile("layer", 0.01, 0.01, 0.01, 1000, 0, parameter_bytes)
    kind = DeviceKind("cpu", link=link or Link())
    return Ground(LayerCosts(ModelProfile("m", SIZE, "cpu", (layer,) * LAYERS)), kind)


def terms(**changes: float) -> Terms:
    return Terms(**{"pause_s": 0.1, "bandwidth_bytes_per_s": 1e9, "left_s": 1e4, "horizon_s": 600.0} | changes)


def pipeline(*bounds: int, shares: tuple[int, ...] = (8,)) -> ParallelPlan:
    return make_plan(bounds, shares, SIZE, "1f1b")


HOME = pipeline(0, 3, 5, 8, 10)


def best_of_all(situation: Situation) -> float:
    cuts = itertools.combinations(range(1, LAYERS), 3)
    return min(step_s(pipeline(0, *cut, LAYERS), ground(), situation) for cut in cuts)


@given(st.lists(st.sampled_from([1.0, 1.0, 1.5, 2.0, 3.0, 4.0]), min_size=4, max_size=4))
def test_what_is_chosen_is_near_the_best_of_all_cuts(slow: list[float]) -> None:
    situation = Situation(tuple(slow))
    found = best_change(HOME, HOME, ground(), situation, terms())
    reached = found.step_s if found is not None else step_s(HOME, ground(), situation)
    assert reached <= 1.05 * best_of_all(situation)
    assert reached <= step_s(HOME, ground(), situation)


def test_undisturbed_there_is_only_the_way_home() -> None:
    away = pipeline(0, 1, 5, 8, 10)
    found = best_change(away, HOME, ground(), Situation((1.0,) * 4), terms())
    assert found is not None
    assert found.plan == HOME
    assert best_change(HOME, HOME, ground(), Situation((1.0,) * 4), terms()) is None


def test_a_slow_link_is_relieved_by_lighter_stages_on_both_its_sides() -> None:
    around = ground(link=Link(0.0, 1000 / 0.02))
    situation = Situation((1.0,) * 4, {(1, 2): 6.0})
    found = best_change(HOME, HOME, around, situation, terms())
    assert found is not None
    sizes = [stage.stop - stage.first for stage in found.plan.stages]
    assert sizes[1] + sizes[2] < 5
    assert found.step_s < step_s(HOME, around, situation)


def test_layers_that_are_too_big_to_move_stay_and_shares_move() -> None:
    replicated = pipeline(0, 5, 10, shares=(4, 4))
    big = ground(parameter_bytes=10**12)
    found = best_change(replicated, replicated, big, Situation((2.0, 1.0, 1.0, 1.0)), terms())
    assert found is not None
    assert bounds_of(found.plan) == bounds_of(replicated)
    assert moved_bytes(replicated, found.plan, big) == 0
    first, second = found.plan.stages[0].shares
    assert first < second


@pytest.mark.parametrize("slowdown", [2.0, 3.0])
def test_a_slow_replica_gets_its_share_by_speed(slowdown: float) -> None:
    alone = make_plan((0, LAYERS), (8, 8), SIZE, "1f1b")
    found = best_change(alone, alone, ground(parameter_bytes=10**12), Situation((slowdown, 1.0)), terms())
    assert found is not None
    slow, fast = found.plan.stages[0].shares
    assert slow == round(16 / (slowdown + 1))
    assert slow + fast == 16


def test_a_change_that_the_job_does_not_live_to_enjoy_is_not_made() -> None:
    situation = Situation((1.0, 3.0, 1.0, 1.0))
    assert best_change(HOME, HOME, ground(), situation, terms(left_s=0.15)) is None
    assert best_change(HOME, HOME, ground(), situation, terms(left_s=60.0)) is not None


def test_in_a_place_that_changes_all_the_time_only_cheap_changes_pay() -> None:
    long = {"left_s": 1e6, "horizon_s": 1e6}
    assert pays(2.0, 1.0, 1.0, changes_per_s=0.5, **long)
    assert not pays(2.0, 1.0, 2.0, changes_per_s=0.5, **long)
    assert not pays(1.0, 0.99, 0.0, changes_per_s=0.0, **long)


def test_only_what_has_to_travel_is_counted() -> None:
    """Parameters and two moments of Adam: three times the parameters, for each rank that did not have the layer."""
    assert moved_bytes(HOME, pipeline(0, 4, 5, 8, 10), ground()) == 3 * 1000
    both = pipeline(0, 3, 5, 8, 10, shares=(4, 4))
    assert moved_bytes(both, pipeline(0, 4, 5, 8, 10, shares=(4, 4)), ground()) == 2 * 3 * 1000
    assert moved_bytes(HOME, HOME, ground()) == 0


@pytest.mark.parametrize("seed", range(30))
def test_dyn21_the_gain_of_the_chosen_plan_is_within_a_tenth_of_the_predicted_one(seed: int) -> None:
    """Layers of known durations; the job knows them as a probe does, with an error, and by its stages' own times."""
    chance = random.Random(seed)
    durations = [[chance.uniform(0.008, 0.012) for _ in range(3)] for _ in range(16)]
    layers = [LayerProfile("layer", *seconds, 1000, 0, 1000) for seconds in durations]
    home = make_plan((0, 4, 8, 12, 16), (8,), SIZE, "1f1b")
    slow = [1.0] * 4
    slow[chance.randrange(4)] = chance.uniform(1.5, 3.0)

    def seen(layer: LayerProfile) -> LayerProfile:
        names = ("forward_s", "backward_input_s", "backward_weight_s")
        return replace(layer, **{name: getattr(layer, name) * chance.uniform(0.95, 1.05) for name in names})

    def reading(factors: list[float]) -> Reading:
        costs = LayerCosts(ModelProfile("true", SIZE, "cpu", tuple(layers)))
        own = [costs.stage(stage.first, stage.stop) for stage in home.stages]
        times = {
            (at, at): StageTimes(one.forward_s * factors[at], (one.compute_s - one.forward_s) * factors[at])
            for at, one in enumerate(own)
        }
        return Reading(times, (0,) * 4, (Memory(),) * 4, (Forecast(),) * 4)

    job = Estimator(ModelProfile("probed", SIZE, "cpu", tuple(map(seen, layers))), home)
    for _ in range(WARM_UP + BASELINE):
        job.take(reading([1.0] * 4))
    for _ in range(RECENT):
        job.take(reading(slow))
    assert job.ground is not None
    assert job.situation is not None
    found = best_change(home, home, job.ground, job.situation.rounded(0.2), terms())
    assert found is not None
    predicted = step_s(home, job.ground, job.situation) / found.step_s
    truth = Ground(LayerCosts(ModelProfile("true", SIZE, "cpu", tuple(layers))), DeviceKind("cpu"))
    real = step_s(home, truth, Situation(tuple(slow))) / step_s(found.plan, truth, Situation(tuple(slow)))
    assert real == pytest.approx(predicted, rel=0.1)


@given(st.integers(2, 64), st.floats(0.05, 20))
def test_dyn35_two_replicas_have_their_shares_by_speed_to_one_sample(count: int, speed: float) -> None:
    """Each has one at least."""
    ideals = count * speed / (speed + 1), count / (speed + 1)
    for taken, ideal in zip(split(count, [speed, 1.0]), ideals, strict=True):
        assert abs(taken - max(1.0, min(count - 1.0, ideal))) <= 1


@given(st.integers(6, 64), st.lists(st.floats(0.1, 10), min_size=1, max_size=6))
def test_dyn35_no_share_ends_sooner_with_one_sample_elsewhere(count: int, speeds: list[float]) -> None:
    shares = split(count, speeds)
    assert sum(shares) == count
    for taken, speed in zip(shares, speeds, strict=True):
        if taken > 1:
            assert all((share + 1) / other >= taken / speed - 1e-9 for share, other in zip(shares, speeds, strict=True))
