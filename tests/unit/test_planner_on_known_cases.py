"""Cases whose answers are known from arithmetic or from the literature."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from policies.bubbles import bubble
from policies.cost import LayerCosts, Memory, all_reduce_s
from policies.model.cluster import MenuRequest
from policies.model.device import FREE, DeviceKind, Link
from policies.model.families import FAMILIES, Rates, family
from policies.model.profile import LayerProfile, ModelProfile
from policies.partition.cuts import Cutter
from policies.planner import best_plans, divisible_counts
from policies.pricing import make_plan, price, split
from policies.report import pipeline_of
from policies.shapes import Search
from policies.timing import timeline

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KIND = DeviceKind("gpu", link=FREE, action_s=0.0)


def even(layers: int, forward_s: float = 1.0, size: int = 1, overhead_s: float = 0.0) -> ModelProfile:
    """Layers of F = 1, B = 2 a sample, and a constant for each of the three parts."""
    rows = [
        LayerProfile(str(i), forward_s * size + overhead_s, forward_s * size, forward_s * size, 1, 10**6 * size, 1)
        for i in range(layers)
    ]
    return ModelProfile("even", size, "gpu", tuple(rows))


def request(profiles: tuple[ModelProfile, ...], gpus: int, batch: int, **more: object) -> MenuRequest:
    return replace(MenuRequest(profiles, batch, gpus, gpus), **more)


def of_plan(layers: int, stages: int, count: int) -> float:
    profile = even(layers)
    plan = make_plan([layers * s // stages for s in range(stages + 1)], (count,), 1, "1f1b")
    return bubble(timeline(*pipeline_of(plan, LayerCosts(profile), KIND)))


@pytest.mark.parametrize(
    ("stages", "count", "share"), [(8, 16, 0.304), (4, 16, 0.158), (2, 8, 1 / 9), (8, 64, 0.099), (4, 1, 0.75)]
)
def test_the_bubble_is_that_of_the_formula(stages: int, count: int, share: float) -> None:
    assert of_plan(8, stages, count) == pytest.approx((stages - 1) / (count + stages - 1))
    assert of_plan(8, stages, count) == pytest.approx(share, abs=1e-3)


def test_an_uneven_model_is_cut_unevenly() -> None:
    """24 layers on 4 GPUs: an embedding beside the first and a head beside the last give 5/7/7/5, not 6/6/6/6."""
    heavy = {0: 2.2, 23: 2.2}
    rows = tuple(replace(row, forward_s=heavy.get(i, 1.0) * 3 - 2) for i, row in enumerate(even(24).layers))
    best = best_plans(request((replace(even(24), layers=rows),), 4, 32, microbatch_size=1), KIND)[4]
    assert [stage.stop - stage.first for stage in best.plan.stages] == [5, 7, 7, 5]


def test_the_micro_batch_count_has_an_interior_optimum() -> None:
    """With a constant cost for each micro-batch the best count is sqrt((P - 1) W / overhead), B1.9."""
    stages, batch, overhead = 4, 64, 0.5
    profiles = (even(stages, 0.05, 1, overhead), even(stages, 0.05, 32, overhead))
    work = batch * 0.15
    best = best_plans(request(profiles, stages, batch, schedule="1f1b"), KIND)[stages].plan.microbatches
    ideal = math.sqrt((stages - 1) * work / overhead)
    divisors = [m for m in range(1, batch + 1) if batch % m == 0]

    def step(m: int) -> float:
        return (m + stages - 1) * (work / m + overhead)

    assert best == min(divisors, key=step)
    assert 1 < best < batch
    assert best / 2 <= ideal <= best * 2


@pytest.mark.parametrize(("ratio", "winner"), [(0.0, "1f1b"), (0.33, "eager-1f1b"), (0.67, "gpipe")])
def test_the_schedule_follows_the_price_of_transfers(ratio: float, winner: str) -> None:
    kind = replace(KIND, link=Link(3 * ratio, math.inf))
    search = Search(("gpipe", "1f1b", "eager-1f1b"))
    best = best_plans(request((even(4),), 4, 16, microbatch_size=1, replicas=1), kind, search)[4]
    assert best.plan.schedule == winner


def test_interleaving_wins_where_transfers_are_quick_and_loses_where_they_are_slow_with_one_crossover() -> None:
    """Twice the stages have half the bubble and twice the transfers (JCT-07)."""
    search = Search(("1f1b", "interleaved-1f1b"))
    asked = request((even(8),), 4, 16, microbatch_size=1)
    latencies = (0.0, 0.1, 0.3, 1.0, 2.0, 3.0, 6.0, 10.0)
    chosen = [
        best_plans(asked, replace(KIND, link=Link(latency_s, math.inf)), search)[4].plan.schedule
        for latency_s in latencies
    ]
    assert (chosen[0], chosen[-1]) == ("interleaved-1f1b", "1f1b")
    assert sorted(chosen, reverse=True) == chosen


def test_full_recompute_costs_a_third_where_the_backward_is_twice_the_forward() -> None:
    costs = LayerCosts(even(4))
    plain, again = (
        price(make_plan((0, 4), (8,), 1, "1f1b", memory=Memory(recompute=knob)), costs, KIND).step_time_s
        for knob in (False, True)
    )
    assert again / plain == pytest.approx(4 / 3)


def test_knobs_make_a_13b_model_fit_28_gigabytes() -> None:
    profiles = (family("llama-13b", 1), family("llama-13b", 2))
    asked = request(profiles, 8, 64, replicas=1)
    kind = DeviceKind("gpu", 28_000_000_000, Link(1e-5, 1e11), action_s=0.0)
    assert 8 in best_plans(asked, replace(kind, memory_bytes=48_000_000_000), Search(precision="bfloat16"))
    assert 8 not in best_plans(asked, kind, Search(precision="bfloat16"))
    saved = best_plans(asked, kind, Search(precision="bfloat16", recompute=True, offload=True))[8]
    assert max(saved.memory_bytes) <= 28_000_000_000
    assert saved.plan.offload or saved.plan.stages[0].recompute


def test_a_slow_device_gets_fewer_layers_and_a_slow_pipeline_a_smaller_share() -> None:
    asked = request((even(12),), 4, 32, microbatch_size=1, replicas=1)
    best = best_plans(asked, KIND, Search(slow=(1.0, 2.0)))[4].plan
    layers = [stage.stop - stage.first for stage in best.stages]
    assert layers[1] == min(layers)
    assert layers[1] < layers[0]
    twin = best_plans(replace(asked, replicas=4), KIND, Search(slow=(1.0, 2.0)))[4].plan
    shares = twin.stages[0].shares
    assert shares[1] == min(shares)
    assert sum(shares) == 32


def test_shares_are_in_proportion_and_whole() -> None:
    assert split(10, [1, 1, 1]) == (4, 3, 3)
    assert split(12, [1, 0.5, 1]) == (5, 2, 5)
    assert split(3, [1, 0.01, 1]) == (1, 1, 1)


def test_parameter_counts_of_the_families_are_the_published_ones() -> None:
    published = {
        "gpt2": 124.4,
        "gpt2-xl": 1557,
        "llama-7b": 6738,
        "llama-13b": 13016,
        "vgg-16": 138.4,
        "resnet-50": 25.5,
    }
    for name, millions in published.items():
        found = sum(layer.parameter_bytes for layer in family(name, 1).layers) / 2e6
        assert found == pytest.approx(millions, rel=0.01)
    assert all(family(name, 4, Rates(1e12, 1e11)).layers for name in FAMILIES)
    with pytest.raises(ValueError, match="unknown model"):
        family("gpt5", 1)


def test_a_ring_moves_twice_the_bytes_less_its_share() -> None:
    assert all_reduce_s(1e9, 4, Link(0.0, 1e9)) == pytest.approx(1.5)
    assert all_reduce_s(1e9, 1, Link(0.0, 1e9)) == 0.0


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize("rate", [0.5, 1, 1.25, 3, 6, 12])
def test_vgg16_is_never_slower_than_other_ways_to_cut(rate: float, gpus: int) -> None:
    steps = benchmark("plan_vgg16").compare(rate, gpus)
    ours = steps.pop("jctd")
    assert ours <= min(steps.values()) + 1e-9
    if rate <= 3:
        assert ours < steps["compute"] * (1 - 1e-6)
    if rate in {1.25, 3} and gpus == 2:
        assert ours < steps["max(compute, 2c)"] * (1 - 1e-6)


def test_a_thousand_layers_are_planned_and_repartitioned() -> None:
    speed = benchmark("plan_speed")
    _, step_s = speed.full_plan(gpus=16)
    assert step_s > 0
    _, before, after = speed.repartition(gpus=16)
    assert after <= before


def test_condensed_planning_loses_little() -> None:
    costs = LayerCosts(benchmark("plan_speed").random_profile(400, 5))
    fine, coarse = (Cutter(costs, KIND, most_blocks=blocks) for blocks in (400, 64))
    first = fine.programme("loop", 8)
    assert first is not None
    best = fine.period(fine.exact(first))
    assert coarse.period(coarse.candidates(8, 64)[0]) <= 1.05 * best


def test_sizes_that_divide_at_all_are_known_without_a_plan() -> None:
    asked = MenuRequest((even(8),), 16, 1, 12)
    assert divisible_counts(asked) == tuple(range(1, 9))
    assert divisible_counts(replace(asked, replicas=2)) == tuple(range(2, 13, 2))
    assert divisible_counts(replace(asked, stages=(3,))) == (3,)
    assert divisible_counts(replace(asked, allowed_devices=(9, 12))) == ()
