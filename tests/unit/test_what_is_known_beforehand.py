"""A job knows more than its own last steps: what it was like before its shape changed, and what agents foresee."""

import json
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from policies.ir.plan import ParallelPlan
from policies.model.device import Link
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan
from scheduler.protocol.spec import AdaptSpec
from worker.adapt import baseline
from worker.adapt.adapter import Adapter
from worker.adapt.baseline import Baseline
from worker.adapt.estimate import BASELINE, RECENT, WARM_UP, Estimator
from worker.adapt.forecast import Forecast, Foresight
from worker.adapt.loop import Prepare, Revise
from worker.adapt.meter import StageTimes
from worker.adapt.situation import Situation
from worker.adapt.statistics import Memory, Passage, Reading, Route

LAYER = LayerProfile("layer", 0.28, 0.28, 0.28, 1000, 0, 0)
PROFILE = ModelProfile("m", 1, "cpu", (LAYER,) * 12)
WIDE, NARROW = make_plan((0, 3, 6, 9, 12), (4,), 1, "1f1b"), make_plan((0, 4, 8, 12), (4,), 1, "1f1b")
ALL_WELL = (1.0,) * 4
NEIGHBOUR = Forecast(2.0, 1.6)
"""What an agent that is sure of it says."""


def reading(
    plan: ParallelPlan,
    slow: Sequence[float] = ALL_WELL,
    foreseen: Sequence[Forecast] = (),
    prepared: int = 0,
    passages: tuple[Passage, ...] = (),
    memory: Sequence[Memory] = (),
) -> Reading:
    """Each layer takes 0.31 s forward and 0.62 s backward."""
    ranks = plan.world_size
    times = {
        (index, index): StageTimes(len(stage.layers) * 0.31 * slow[index], len(stage.layers) * 0.62 * slow[index])
        for index, stage in enumerate(plan.stages)
    }
    told = tuple(foreseen) or (Forecast(),) * ranks
    return Reading(times, (prepared,) * ranks, tuple(memory) or (Memory(),) * ranks, told, passages)


def taught(made: Estimator, plan: ParallelPlan, slow: Sequence[float] = ALL_WELL, **told: object) -> Estimator:
    """Its baseline taken, and then enough steps, all alike."""
    for _ in range(WARM_UP + BASELINE + RECENT):
        made.take(reading(plan, slow, **told))  # type: ignore[arg-type]
    return made


def before() -> Baseline:
    """Of an undisturbed generation of four stages."""
    found = taught(Estimator(PROFILE, WIDE), WIDE).baseline
    assert found is not None
    return found


def slow_in(made: Estimator) -> tuple[float, ...]:
    assert made.situation is not None
    return made.situation.slow


# --- handed on ------------------------------------------------------------------------------------------------------


def test_without_a_baseline_a_device_that_was_always_slow_is_taken_for_what_it_is() -> None:
    made = taught(Estimator(PROFILE, NARROW), NARROW, (1, 2, 1))
    assert slow_in(made) == pytest.approx((1, 1, 1))


def test_a_device_that_is_slow_while_the_job_is_resized_is_known_to_be_slow() -> None:
    made = taught(Estimator(PROFILE, NARROW, before()), NARROW, (1, 2, 1))
    assert slow_in(made) == pytest.approx((1, 2, 1))


def test_of_two_devices_one_slow_one_is_enough_to_tell() -> None:
    two = make_plan((0, 6, 12), (4,), 1, "1f1b")
    made = taught(Estimator(PROFILE, two, before()), two, (2, 1))
    assert slow_in(made) == pytest.approx((2, 1))


def test_what_the_new_shape_changes_for_all_alike_disturbs_nobody() -> None:
    """Fewer processes on one machine are all quicker, or all slower."""
    for pace in (0.6, 1.7):
        made = taught(Estimator(PROFILE, NARROW, before()), NARROW, (pace,) * 3)
        assert slow_in(made) == pytest.approx((1, 1, 1))
        slower = taught(Estimator(PROFILE, NARROW, before()), NARROW, (pace, pace, 2 * pace))
        assert slow_in(slower) == pytest.approx((1, 1, 2))


def test_when_the_neighbour_ends_the_device_is_undisturbed_and_not_twice_as_fast() -> None:
    made = taught(Estimator(PROFILE, NARROW, before()), NARROW, (1, 2, 1))
    for _ in range(RECENT):
        made.take(reading(NARROW))
    assert slow_in(made) == pytest.approx((1, 1, 1))


def test_a_baseline_goes_on_through_a_generation_too_short_to_take_its_own() -> None:
    known = before()
    short = Estimator(PROFILE, NARROW, known)
    short.take(reading(NARROW))
    assert short.baseline == known


def test_a_baseline_of_another_microbatch_size_is_not_used() -> None:
    other = Baseline(ModelProfile("m", 2, "cpu", (LAYER,) * 12))
    made = taught(Estimator(PROFILE, NARROW, other), NARROW, (1, 2, 1))
    assert slow_in(made) == pytest.approx((1, 1, 1))


def test_links_belong_to_members_and_survive_as_far_as_these_do() -> None:
    known = Baseline(PROFILE, {(0, 1): Link(1e-4, 1e6), (2, 3): Link(2e-4, 2e6)})
    told = json.loads(json.dumps(baseline.described(known, members=(4, 5, 6, 7))))
    assert baseline.read(told, members=(7, 6, 9)) == Baseline(PROFILE, {(0, 1): Link(2e-4, 2e6)})


def test_a_link_that_is_slow_while_the_job_is_resized_is_known_to_be_slow() -> None:
    known = Baseline(before().profile, {(0, 1): Link(1e-4, 1000 / 0.2499)})
    passages = tuple(Passage(Route(a, b, 1000), 1.0) for a, b in ((0, 1), (1, 0)))
    made = taught(Estimator(PROFILE, NARROW, known), NARROW, (1, 1, 1), passages=passages)
    assert made.situation is not None
    assert made.situation.links == {(0, 1): pytest.approx(4.0)}


# --- foreseen -------------------------------------------------------------------------------------------------------


def test_a_forecast_stands_for_a_device_until_the_jobs_own_steps_can_show_it() -> None:
    calm, sight = Situation((1.0, 1.0)), Foresight(2, 0.2, RECENT)
    assert sight.over(calm) == calm
    for _ in range(RECENT):
        sight.take((Forecast(), NEIGHBOUR))
        assert sight.over(calm) == Situation((1.0, 2.0))
    sight.take((Forecast(), NEIGHBOUR))
    assert sight.over(calm) == calm, "the job is there, and takes no longer"


def test_what_is_seen_is_not_counted_once_more() -> None:
    sight = Foresight(2, 0.2, RECENT)
    sight.take((Forecast(), NEIGHBOUR))
    assert sight.over(Situation((1.0, 2.5))) == Situation((1.0, 2.5))


@pytest.mark.parametrize("told", [Forecast(2.0, 1.1), Forecast(1.15, 1.1), Forecast()])
def test_a_forecast_that_may_as_well_be_nothing_is_none(told: Forecast) -> None:
    sight = Foresight(2, 0.2, RECENT)
    sight.take((told, Forecast()))
    assert sight.over(Situation((1.0, 1.0))) == Situation((1.0, 1.0))


def test_what_is_foreseen_while_the_baseline_is_taken_is_no_part_of_it() -> None:
    """And is not counted again where steps show it."""
    told = (Forecast(), NEIGHBOUR, Forecast())
    made = taught(Estimator(PROFILE, NARROW), NARROW, (1, 2, 1), foreseen=told)
    assert slow_in(made) == pytest.approx((1, 2, 1))


class Job:
    """An adapter in a pilot whose ranks prepare at once; its steps last 20 s, as its layers take."""

    STEP_S = 20.0

    def __init__(self, profile: ModelProfile = PROFILE) -> None:
        self.now_s, self.notes, self.published = 0.0, list[str](), dict[int, ParallelPlan]()
        spec = AdaptSpec(threshold=0.2, held_s=30, cooldown_s=300, horizon_s=3600)
        self.adapter = Adapter(spec, profile, WIDE, 10_000, self.notes.append, lambda: self.now_s)
        self.plan, self.step, self.prepared = WIDE, 0, 0
        self.reviser = SimpleNamespace(publish=self.published.__setitem__)

    def runs(
        self, steps: int, slow: Sequence[float] = ALL_WELL, told: Sequence[Forecast] = (),
        memory: Sequence[Memory] = (),
    ) -> None:  # fmt: skip
        for _ in range(steps):
            self.now_s += self.STEP_S
            self.step += 1
            found = reading(self.plan, slow, told, self.prepared, memory=memory)
            self.adapter.take(found, self.step, self.STEP_S)
            self._boundary()

    def _boundary(self) -> None:
        found = self.adapter.header(self.reviser, saving=False)  # type: ignore[arg-type]
        for thread in threading.enumerate():
            if thread.name == "adapt":
                thread.join()
        if isinstance(found, Prepare):
            self.prepared = found.revision
        elif isinstance(found, Revise):
            self.plan = self.published[found.revision]
            self.adapter.switched(found.revision, self.plan, "", 0.01)


FORETOLD = (Forecast(), NEIGHBOUR, Forecast(), Forecast())


def test_a_forecast_alone_moves_layers_once_it_was_held_before_steps_could_show_it() -> None:
    job = Job()
    job.runs(WARM_UP + BASELINE + RECENT)
    job.runs(2, told=FORETOLD)
    assert not job.published, "not yet held for 30 s"
    job.runs(4, told=FORETOLD)
    assert job.adapter.revision == 1
    assert len(job.plan.stages[1].layers) < 3
    assert "rank 1 computes 2.0x slower, as its agent foresees" in job.notes[-1]


def test_a_change_is_told_with_what_it_was_planned_for_and_not_with_what_came_since() -> None:
    job = Job()
    job.runs(WARM_UP + BASELINE + RECENT)
    job.runs(5, (1, 2, 1, 1))
    while not job.published:
        job.runs(1, (1, 2, 1, 1))
    job.runs(1, (1, 1, 1, 4))
    assert job.adapter.revision == 1
    assert "since rank 1 computes 2.0x slower; paused" in job.notes[-1]


def test_a_cut_that_a_forecast_asked_for_is_taken_back_where_nothing_comes() -> None:
    job = Job()
    job.runs(WARM_UP + BASELINE + RECENT)
    job.runs(6, told=FORETOLD)
    assert job.plan != WIDE
    job.runs(30, told=FORETOLD)
    assert job.plan == WIDE
    assert any("what its agent foresaw has not come" in note for note in job.notes)
    assert job.adapter.revision == 2, "and the same forecast is not believed again"


def test_a_cut_that_a_forecast_asked_for_stays_where_it_comes() -> None:
    job = Job()
    job.runs(WARM_UP + BASELINE + RECENT)
    job.runs(6, told=FORETOLD)
    away = job.plan
    job.runs(40, (1, 2, 1, 1), told=FORETOLD)
    assert (job.plan, job.adapter.revision) == (away, 1)


# --- memory ---------------------------------------------------------------------------------------------------------

HEAVY = ModelProfile("m", 1, "cpu", (LayerProfile("layer", 0.28, 0.28, 0.28, 1000, 0, 10**8),) * 12)
"""A layer and its state take some 0.4 GB."""
FULL, EMPTY = Memory(8.9e9, 1e10), Memory(1e9, 1e10)
"""Below the watermark, and with no room for one more layer; with room for all."""


def test_no_layer_goes_to_a_device_that_has_no_room_for_it() -> None:
    job = Job(HEAVY)
    job.runs(WARM_UP + BASELINE + RECENT, memory=[FULL] * 4)
    job.runs(20, (1, 2, 1, 1), memory=[FULL] * 4)
    assert not job.published


def test_layers_go_where_there_is_room() -> None:
    memory = [FULL, FULL, FULL, EMPTY]
    job = Job(HEAVY)
    job.runs(WARM_UP + BASELINE + RECENT, memory=memory)
    job.runs(20, (1, 2, 1, 1), memory=memory)
    first, second, third, fourth = (len(stage.layers) for stage in job.plan.stages)
    assert (first, third) == (3, 3)
    assert second < 3 < fourth
