"""Fewest bubbles are not the goal: under slow links 4 stages and 16 micro-batches end sooner than 8 and 64."""

from dataclasses import replace

import pytest
from samples import job, snapshot

from policies.model.cluster import DeviceView, MenuRequest
from policies.model.device import DeviceKind
from policies.model.profile import LayerProfile, ModelProfile
from policies.planner import best_plans
from policies.registry import find

SLOW, FAST = 8_000_000, 100
"""Bytes a sample between layers, over links of 1 GB/s: 8 ms, several times a layer's work, or nothing."""


def request(crossing: int) -> MenuRequest:
    def layers(size: int) -> tuple[LayerProfile, ...]:
        seconds = 1e-3 * (1.0 + 0.25 * size)
        return tuple(LayerProfile(f"b{n}", seconds, seconds, seconds, crossing * size, 0, 1000) for n in range(16))

    profiles = tuple(ModelProfile("m", size, "cpu", layers(size)) for size in (1, 4))
    return MenuRequest(profiles, 64, 4, 8, (4, 8))


def bubble_ratio(stages: int, microbatches: int) -> float:
    """(P - 1) / (m + P - 1) (FORMULAS B3)."""
    return (stages - 1) / (microbatches + stages - 1)


def step_s(crossing: int, stages: int, microbatches: int) -> float:
    asked = replace(request(crossing), stages=(stages,), microbatches=microbatches)
    return best_plans(asked, DeviceKind("cpu"))[stages].step_time_s


def test_more_stages_and_micro_batches_idle_less_and_still_take_longer_under_slow_links() -> None:
    assert bubble_ratio(8, 64) < bubble_ratio(4, 16)
    assert step_s(SLOW, 8, 64) > step_s(SLOW, 4, 16)


@pytest.mark.parametrize(("crossing", "shape"), [(SLOW, "4×16"), (FAST, "8×16")])
def test_the_policy_picks_what_ends_sooner(crossing: int, shape: str) -> None:
    devices = [DeviceView(f"d{n}", "n0", "cpu", None) for n in range(8)]
    (start,) = find("jct").decide(snapshot([replace(job(1), menu=request(crossing))], devices), 6_000).starts
    assert start.plan is not None
    assert start.plan.shape == shape
