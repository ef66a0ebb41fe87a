import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from samples import layer

from policies.asynchronous import asynchronous_plans
from policies.convergence import Convergence, delays, gradient_noise, loss_floor, noise_scale, smoothness
from policies.cost import LayerCosts
from policies.model.device import FREE, DeviceKind
from policies.model.profile import ModelProfile
from policies.partition.cuts import Cutter

KIND = DeviceKind("cpu", link=FREE, action_s=0.0)
PROFILE = ModelProfile("even", 1, "cpu", tuple(layer(f"l{i}", 1.0, parameter_bytes=0) for i in range(8)))


def convergence(target: float, layers: int = 8) -> Convergence:
    return Convergence(1.0, (1.0,) * layers, 1.0, target)


def test_the_ratio_is_that_of_the_iterations() -> None:
    known = convergence(0.5)
    for staleness in (0.0, 3.0, 100.0):
        expected = known.iterations(staleness) / known.iterations()
        assert known.ratio(staleness) == pytest.approx(expected)
    assert known.ratio(0.0) == 1.0


def test_staleness_grows_with_the_cube_of_the_stages() -> None:
    def worst(stages: int) -> float:
        alive = [stages - stage for stage in range(stages)]
        return convergence(1.0, stages).staleness(range(stages + 1), delays("async-1f1b", alive))

    slope = math.log(worst(512) / worst(256)) / math.log(2)
    assert slope == pytest.approx(3, abs=0.02)
    assert delays("2bw", [4, 3, 2, 1]) == (1, 1, 1, 1)
    assert delays("1f1b", [4, 3, 2, 1]) == (0, 0, 0, 0)


def best(target: float, devices: int = 8) -> tuple[int, float]:
    plans = asynchronous_plans(LayerCosts(PROFILE), KIND, devices, 16, 1, convergence(target))
    found = next(priced for priced in plans if priced.plan.schedule == "async-1f1b")
    assert found.time_to_accuracy_s is not None
    return len(found.plan.stages), found.time_to_accuracy_s


def test_the_more_staleness_costs_the_fewer_stages_are_chosen() -> None:
    slow_link = replace(KIND, link=replace(FREE, latency_s=0.5))
    known = LayerCosts(PROFILE)
    counts = []
    for target in (1e-4, 0.3, 30.0):
        plans = asynchronous_plans(known, slow_link, 8, 16, 1, convergence(target))
        counts.append(min(len(priced.plan.stages) for priced in plans))
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("target", [0.01, 1.0, 10.0])
def test_the_early_stop_finds_what_a_full_scan_finds(target: float) -> None:
    known, costs = convergence(target), LayerCosts(PROFILE)
    scan = []
    for bounds, replicas in Cutter(costs, KIND).replicated(8, 16):
        alive = [-(-sum(replicas[stage:]) // replicas[stage]) for stage in range(len(replicas))]
        own = [float(costs.compute_s[b] - costs.compute_s[a]) for a, b in pairwise(bounds)]
        period = max(
            sum(own[i : j + 1]) / sum(replicas[i : j + 1]) for i in range(len(own)) for j in range(i, len(own))
        )
        steps = known.iterations(known.staleness(bounds, delays("async-1f1b", alive)))
        scan.append(steps * 16 * period)
    assert best(target)[1] == pytest.approx(min(scan))


def test_smoothness_needs_a_hundred_iterations() -> None:
    assert smoothness([2.0] * 100, [1.0] * 100) == 2.0
    with pytest.raises(ValueError, match="at least 100"):
        smoothness([2.0] * 99, [1.0] * 99)


def test_gradient_noise_is_estimated_without_bias() -> None:
    """Micro-batches of 4 samples around a true gradient of squared norm 25, each sample's variance 3 x 2^2."""
    generator = np.random.default_rng(1)
    true, noises = np.array([3.0, 4.0, 0.0]), []
    for _ in range(4000):
        parts = true + generator.normal(0, 2 / 4**0.5, (8, 3))
        squares = [float((part**2).sum()) for part in parts]
        noises.append(gradient_noise(squares, float((parts.mean(0) ** 2).sum()), 4))
    assert sum(noise.squared for noise in noises) / len(noises) == pytest.approx(25, rel=0.01)
    assert sum(noise.variance for noise in noises) / len(noises) == pytest.approx(12, rel=0.02)
    assert noise_scale(noises) == pytest.approx(12 / 25, rel=0.03)


def test_one_micro_batch_tells_no_noise() -> None:
    with pytest.raises(ValueError, match="at least two"):
        gradient_noise([1.0], 1.0, 4)


@pytest.mark.parametrize(("b0", "b1", "b2"), [(0.02, 0.4, 1.5), (0.5, 0.2, 0.0), (0.001, 2.0, 0.3)])
def test_the_floor_of_a_loss_is_found_from_its_curve(b0: float, b1: float, b2: float) -> None:
    losses = [1 / (b0 * step + b1) + b2 for step in range(2000)]
    assert loss_floor(losses) == pytest.approx(b2, abs=0.02)
