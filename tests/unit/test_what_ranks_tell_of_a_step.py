"""Statistics ride on a step's all-reduce: every rank sets its own places, and the sum is what all of them told."""

from types import SimpleNamespace

import pytest
import torch

from policies.ir.action import Action, Kind
from policies.ir.timeline import Span
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan
from policies.schedules.lowering import orders_for
from scheduler.protocol.slowdown import Slowdown, Source
from worker.adapt.diagnosis import diagnose, loader_bound, telemetry
from worker.adapt.estimate import BASELINE, RECENT, WARM_UP, Estimator, Links
from worker.adapt.forecast import Forecast
from worker.adapt.meter import Meter, StageTimes
from worker.adapt.part import Part, foreseen
from worker.adapt.situation import Situation
from worker.adapt.statistics import Layout, Memory, Passage, Reading, Route, routes_of
from worker.shapes import Shape

PLAN = make_plan((0, 2, 4, 6), (4,), 1, "1f1b")
LAYER = LayerProfile("layer", 0.010, 0.010, 0.010, 1000, 0, 0)
PROFILE = ModelProfile("m", 1, "cpu", (LAYER,) * 6)
NOTHING = (Memory(),) * 3
UNFORESEEN = (Forecast(),) * 3


def reading(slow: tuple[float, ...] = (1, 1, 1), load_s: float = 0.0, passages: tuple[Passage, ...] = ()) -> Reading:
    """Of PLAN, each layer taking 11 ms forward and 22 ms backward."""
    times = {
        (stage, stage): StageTimes(
            len(PLAN.stages[stage].layers) * 0.011 * slow[stage],
            len(PLAN.stages[stage].layers) * 0.022 * slow[stage],
            load_s if stage == 0 else 0.0,
        )
        for stage in range(3)
    }
    return Reading(times, (0, 0, 0), NOTHING, UNFORESEEN, passages)


def estimator() -> Estimator:
    """With a baseline and nothing since."""
    made = Estimator(PROFILE, PLAN)
    for _ in range(WARM_UP + BASELINE):
        made.take(reading())
    return made


def test_the_sum_of_all_ranks_vectors_is_read_back_as_what_each_told() -> None:
    routes = routes_of(orders_for(PLAN), {stage: [Shape((2, 8), torch.float32)] for stage in (1, 2)})
    layout = Layout(PLAN, routes)
    assert len(routes) == 4 * 2 * 2
    assert set(routes) == {Route(a, b, 64) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))}
    vector = [0.0] * layout.size(stamped=True)
    for rank in range(3):
        meter = Meter()
        for tag, route in enumerate(routes):
            if route.source == rank:
                meter.sent_s[tag] = 100.0 + tag
            elif route.destination == rank and tag % 2:
                meter.arrived_s[tag] = 100.25 + tag
        times = {rank: StageTimes(rank + 1.0, 2.0, 0.5)}
        told = layout.values(rank, times, rank, Memory(rank, 8), Forecast(1.5, 1.25), meter)
        for place, value in told.items():
            assert vector[place] == 0
            vector[place] = value
    found = layout.read(vector)
    assert found.times == {(rank, rank): StageTimes(rank + 1.0, 2.0, 0.5) for rank in range(3)}
    assert found.prepared == (0, 1, 2)
    assert found.memory == tuple(Memory(rank, 8) for rank in range(3))
    assert found.foreseen == (Forecast(1.5, 1.25),) * 3
    assert len(found.passages) == 8
    assert {passage.seconds for passage in found.passages} == {0.25}


def test_stage_times_are_a_microbatch_without_its_loading() -> None:
    meter = Meter()
    meter.load_s = 0.4
    spans = [Span(0, Action(0, Kind.FORWARD, i), i, i + 0.5) for i in range(4)]
    spans += [Span(0, Action(0, Kind.BACKWARD, i), i + 0.5, i + 0.8) for i in range(4)]
    found = meter.stage_times(0, 2, spans)
    assert found.forward_s == pytest.approx(0.4)
    assert found.backward_s == pytest.approx(0.3)
    assert found.load_s == pytest.approx(0.1)


def test_a_device_that_slows_down_is_told_from_its_own_baseline() -> None:
    made = estimator()
    assert made.situation is None
    for _ in range(RECENT):
        made.take(reading((1, 2.5, 1)))
    assert made.situation is not None
    assert made.situation.slow == pytest.approx((1, 2.5, 1))


def test_dyn41_one_slow_step_is_no_slow_device() -> None:
    """The median of the last few steps has to be slow."""
    made = estimator()
    for slow in (1, 1, 4, 1, 4):
        made.take(reading((1, slow, 1)))
    assert made.situation is not None
    assert made.situation.slow == pytest.approx((1, 1, 1))
    made.take(reading((1, 4, 1)))
    assert made.situation.slow == pytest.approx((1, 4, 1))


def test_after_a_change_of_cut_the_same_device_is_as_slow_as_before() -> None:
    made = estimator()
    shifted = make_plan((0, 3, 4, 6), (4,), 1, "1f1b")
    made.revised(shifted)
    for _ in range(RECENT):
        times = {
            (0, 0): StageTimes(0.033, 0.066), (1, 1): StageTimes(0.0275, 0.055), (2, 2): StageTimes(0.022, 0.044),
        }  # fmt: skip
        made.take(Reading(times, (0, 0, 0), NOTHING, UNFORESEEN))
    assert made.situation is not None
    assert made.situation.slow == pytest.approx((1, 2.5, 1))


@pytest.mark.parametrize("offset_s", [0.0, 5000.0, -0.003])
def test_a_links_time_is_told_without_comparing_clocks(offset_s: float) -> None:
    """Rank 1's clock is offset_s ahead; a message takes 20 ms there and back."""
    links = Links()
    passages = (Passage(Route(0, 1, 1000), 0.020 + offset_s), Passage(Route(1, 0, 1000), 0.020 - offset_s))
    for _ in range(3):
        links.take(reading(passages=passages))
    assert links.transfers_s()[0, 1] == (1000, pytest.approx(0.020))


def test_a_link_of_which_one_way_was_seen_is_not_known_yet() -> None:
    """Receivers tell when a message came only where they waited for it, and rank 1's machine is up an hour longer."""
    links = Links()
    for _ in range(3):
        links.take(reading(passages=(Passage(Route(0, 1, 1000), 3600.020),)))
    assert links.transfers_s() == {}
    for _ in range(3):
        links.take(reading(passages=(Passage(Route(1, 0, 1000), -3599.980),)))
    assert links.transfers_s() == {(0, 1): (1000, pytest.approx(0.020))}


def test_a_link_that_is_slowed_four_times_is_reported_so() -> None:
    made = Estimator(PROFILE, PLAN)

    def crossing(seconds: float) -> tuple[Passage, ...]:
        return tuple(Passage(Route(a, b, 1000), seconds) for a, b in ((1, 2), (2, 1)))

    for _ in range(WARM_UP + BASELINE):
        made.take(reading(passages=crossing(0.010)))
    for _ in range(RECENT):
        made.take(reading(passages=crossing(0.040)))
    assert made.situation is not None
    assert made.situation.links == {(1, 2): pytest.approx(4.0)}
    assert made.situation.slow == pytest.approx((1, 1, 1))


def test_a_first_stage_that_waits_for_its_loader_is_named_as_such() -> None:
    made = estimator()
    for _ in range(RECENT):
        made.take(reading(load_s=0.030))
    assert "stage 0 is bound by its loader: 30.0 of 96.0 ms" in loader_bound(made)
    for _ in range(RECENT):
        made.take(reading(load_s=0.001))
    assert loader_bound(made) == ""


def test_injected_causes_are_told_apart() -> None:
    """The loader, one stage's computing, one link: each is named alone."""
    made = estimator()
    slow_link = tuple(Passage(Route(a, b, 1000), 0.080) for a, b in ((1, 2), (2, 1)))
    for readings, said in (
        ({"load_s": 0.030}, ["stage 0 is bound by its loader: 30.0 of 96.0 ms"]),
        ({"slow": (1, 1, 2)}, ["stage 2 computes 1.50x as long as the mean"]),
        ({"passages": slow_link}, ["messages between ranks 1 and 2 take 80.0 ms, 121% of the slowest stage"]),
        ({}, []),
    ):
        made.links.forget()
        for _ in range(RECENT):
            made.take(reading(**readings))
        found = diagnose(made)
        assert len(found) == len(said), found
        assert all(line.startswith(beginning) for line, beginning in zip(found, said, strict=True)), found


def test_stages_and_links_are_told_as_numbers() -> None:
    made = estimator()
    crossing = tuple(Passage(Route(a, b, 1000), 0.010) for a, b in ((0, 1), (1, 0)))
    for _ in range(RECENT):
        made.take(reading(passages=crossing))
    told = telemetry(made)
    assert told["stages"][1] == {
        "stage": 1, "rank": 1, "forward_s": pytest.approx(0.022), "backward_s": pytest.approx(0.044), "load_s": 0.0,
    }  # fmt: skip
    (link,) = told["links"]
    assert link["ranks"] == (0, 1)
    assert link["bandwidth_bytes_per_s"] == pytest.approx(100_000)


def test_while_a_batch_ramps_up_a_step_counts_as_one_of_the_whole_batch() -> None:
    """Else a change that was confirmed while it grew would look as if it had made steps longer."""
    ramp = SimpleNamespace(plan=PLAN, routes={1: ()}, microbatches_at=lambda step: 2 if step < 5 else 4)
    told: list[float] = []
    adapter = SimpleNamespace(take=lambda reading, step, step_s: told.append(step_s))
    part = Part(ramp, Meter(), None, None, adapter, 0.9, lambda: None)  # type: ignore[arg-type]
    for boundary, step_s in ((5, 1.0), (6, 2.0)):
        part.take([0.0] * part.size(boundary - 1, 1), boundary, 1, step_s)
    assert told == [2.0, 2.0]


def test_noise_is_no_disturbance() -> None:
    noisy = Situation((1.15, 0.9, 1.0), {(0, 1): 1.1})
    assert not noisy.calm
    assert noisy.rounded(0.2).calm
    assert not Situation((1.0, 1.5)).rounded(0.2).calm
    assert not Situation((1.0, 0.5)).rounded(0.2).calm


@pytest.mark.parametrize(
    ("changes", "believed"),
    [
        ({}, Forecast(2.0, 1.5)), ({"contested": False}, Forecast()), ({"confidence": 0.2}, Forecast()),
        ({"source": Source.OBSERVED}, Forecast()),
        ({"ratio": 1.25, "low": 1.1, "stage_ratio": 2.5, "stage_low": 1.8}, Forecast(2.5, 1.8)),
    ],
)  # fmt: skip
def test_only_a_confident_forest_is_believed_beforehand(changes: dict[str, object], believed: Forecast) -> None:
    told = {"device": "gpu", "ratio": 2.0, "low": 1.5, "high": 3.0, "confidence": 0.9, "source": Source.FOREST}
    assert foreseen(Slowdown(**{**told, "contested": True, **changes})) == believed
    assert foreseen(None) == Forecast()
