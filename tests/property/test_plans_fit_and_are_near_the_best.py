"""The planner against enumeration on small random profiles, and what every plan must respect."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.cost import LayerCosts, Memory
from policies.jct.menu import build_menu
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile
from policies.partition.bound import period_s
from policies.partition.cuts import Cutter
from policies.planner import best_plans
from policies.pricing import fits, price, uneven_plan
from policies.schedules.assign import schedule_of
from policies.schedules.lowering import orders_for
from policies.schedules.validate import walk
from policies.shapes import Search
from worker.abilities import unfit


def random_profile(draw: random.Random, layers: int) -> ModelProfile:
    rows = []
    for index in range(layers):
        forward_s = draw.lognormvariate(0, 0.8)
        backward_s = forward_s * draw.uniform(1.5, 2.5)
        size = int(1e6 * draw.lognormvariate(0, 1))
        rows.append(LayerProfile(str(index), forward_s, backward_s / 2, backward_s / 2, size, size, 1000))
    return ModelProfile("random", 1, "x", tuple(rows))


def a_link(draw: random.Random, costs: LayerCosts, stages: int) -> Link:
    """So that a typical transfer takes 5 to 50 % of a stage's time."""
    return Link(0.0, 1e6 / (draw.choice([0.1, 0.3, 0.6, 1.0]) * costs.whole_s / stages * 0.5))


def test_the_dynamic_programme_finds_the_smallest_period() -> None:
    """500 profiles of up to 8 layers on up to 5 stages; every cut is enumerated, none is enumerated by the planner."""
    programme, exact = [], []
    for seed in range(500):
        draw = random.Random(seed)
        layers = draw.randint(3, 8)
        stages = draw.randint(2, min(5, layers))
        costs = LayerCosts(random_profile(draw, layers))
        cutter = Cutter(costs, DeviceKind("x", link=a_link(draw, costs, stages), action_s=0.0))
        best = min(cutter.period((0, *cut, layers)) for cut in combinations(range(1, layers), stages - 1))
        first = cutter.programme("loop", stages)
        assert first is not None
        programme.append(cutter.period(first) / best)
        exact.append(cutter.period(cutter.exact(first)) / best)
    assert sum(programme) / 500 < 1.005
    assert max(exact) < 1 + 1e-6


def divisions(devices: int, stages: int) -> Iterator[tuple[int, ...]]:
    for cut in combinations(range(1, devices), stages - 1):
        yield tuple(b - a for a, b in pairwise((0, *cut, devices)))


@pytest.mark.parametrize("seed", range(12))
def test_plans_with_replicas_are_within_eight_percent_of_enumeration(seed: int) -> None:
    draw = random.Random(seed)
    layers, devices, count = draw.randint(3, 6), draw.randint(2, 5), 30
    profile = random_profile(draw, layers)
    costs = LayerCosts(profile)
    kind = DeviceKind("x", link=a_link(draw, costs, devices), action_s=0.0)
    best = min(
        price(uneven_plan((0, *cut, layers), replicas, count, 1, "1f1b", Memory()), costs, kind).step_time_s
        for stages in range(1, min(devices, layers) + 1)
        for cut in combinations(range(1, layers), stages - 1)
        for replicas in divisions(devices, stages)
    )
    request = MenuRequest((profile,), count, devices, devices, microbatch_size=1, schedule="1f1b")
    assert best_plans(request, kind, Search(any_replicas=True))[devices].step_time_s <= 1.08 * best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 10), st.integers(1, 8), st.sampled_from([4, 12, 32]), st.booleans())
def test_every_plan_runs_fits_and_never_beats_the_bound(
    seed: int, layers: int, most: int, batch: int, tight: bool
) -> None:
    draw = random.Random(seed)
    profile = random_profile(draw, layers)
    costs = LayerCosts(profile)
    memory = int(draw.uniform(0.2, 1.5) * costs.activation_bytes[-1]) if tight else None
    kind = DeviceKind("x", memory, a_link(draw, costs, 2), action_s=0.0)
    names = ("1f1b", "gpipe", "eager-1f1b", "interleaved-1f1b", "zb-h1", "zbv")
    search = Search(names, any_replicas=True, recompute=True)
    for count, priced in best_plans(MenuRequest((profile,), batch, 1, most), kind, search).items():
        plan = priced.plan
        assert plan.world_size == count
        assert [stage.first for stage in plan.stages[1:]] == [stage.stop for stage in plan.stages[:-1]]
        assert plan.layer_count == layers
        assert all(sum(stage.shares) == plan.microbatches for stage in plan.stages)
        assert fits(priced, kind)
        assert priced.step_time_s >= costs.whole_s * plan.microbatches / count * (1 - 1e-9)
        schedule = schedule_of(plan)
        assert sum(1 for _ in walk(schedule.orders, schedule.stages)) == sum(map(len, schedule.orders))
        assert len(orders_for(plan)) == count


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(2, 9), st.floats(0.05, 1.5), st.floats(0.01, 2.0),
    st.sampled_from([None, "gpipe", "interleaved-1f1b", "zb-h2", "zbv", "2bw"]),
)  # fmt: skip
def test_every_entry_of_a_menu_fits_its_device_and_saves_memory_only_where_it_must(
    seed: int, layers: int, share: float, parameters: float, schedule: str | None
) -> None:
    """share: of the model's activations, that a device holds. parameters: their size beside activations."""
    draw = random.Random(seed)
    drawn = random_profile(draw, layers)
    rows = tuple(replace(row, parameter_bytes=int(parameters * row.activation_bytes)) for row in drawn.layers)
    profile = replace(drawn, layers=rows)
    costs = LayerCosts(profile)
    kind = DeviceKind("x", int(share * costs.activation_bytes[-1]), a_link(draw, costs, 2), action_s=0.0)
    request = MenuRequest((profile,), 12, 1, 6, schedule=schedule)
    plain = best_plans(request, kind)
    menu = build_menu(request, (kind,)).of("x")
    for count, entry in menu.items():
        priced = price(entry.plan, costs, kind)
        assert fits(priced, kind)
        assert (priced.step_time_s, priced.memory_bytes) == (entry.step_time_s, entry.memory_bytes)
        assert bool(entry.plan.saving) == (count not in plain)
        assert count not in plain or entry.plan == plain[count].plan
        assert unfit(entry.plan) == ""
    assert menu.keys() >= plain.keys()


@given(
    st.lists(st.floats(0.1, 5), min_size=1, max_size=7).flatmap(
        lambda own: st.tuples(st.just(own), st.lists(st.floats(0, 3), min_size=len(own) - 1, max_size=len(own) - 1))
    ),
    st.integers(1, 3),
)
def test_the_period_is_the_largest_over_all_intervals(times: tuple[list[float], list[float]], depth: int) -> None:
    own, transfer = times
    alive = [1 + depth * (len(own) - 1 - stage) for stage in range(len(own))]
    slow = max(
        (sum(own[i : j + 1]) + 2 * sum(transfer[i:j])) / (alive[i] - alive[j] + 1)
        for i in range(len(own))
        for j in range(i, len(own))
    )
    assert period_s(own, transfer, alive) == pytest.approx(slow)
