"""What an agent says of each device's slowdown: by a forest that fits, else as step times show it, else nothing."""

import asyncio
import itertools
import os
from pathlib import Path

import msgspec
import pytest
from forests import CPU, model
from gang import plan

from agent.devices import KnownGpus
from agent.devices.scripted import Scripted
from agent.forest import file
from agent.forest.model import ANY, Hardware
from agent.forest.observed import CALM, Observed, Pace
from agent.forest.predictor import SHIPPED, Predictor, choose, is_disturbed
from agent.forest.schema import DYNPIPE, NODE
from agent.telemetry.members import OwnUse
from agent.telemetry.sampler import Sampler
from agent.telemetry.sensing import sense
from scheduler.protocol.messages import DeviceInfo, Phase, Report, Run, Target
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.spec import AttemptSpec, JobSpec
from scheduler.protocol.telemetry import DeviceSample, Process, Telemetry

SPEC = AttemptSpec(kind="train", nonce="n", spec_key="k", job=JobSpec(name="t", entrypoint="a:b", workdir="/"))


def member(device: str, number: int = 0, ranks: int = 1, **said) -> tuple[Target, Report]:
    target = Target(job=1, attempt=1, member=number, device=device, want=Run(), spec=SPEC,
                    plan=plan(range(ranks + 1)), ranks=tuple(range(ranks)))  # fmt: skip
    return target, Report(job=1, attempt=1, member=number, seq=1, phase=Phase.TRAINING, pid=4711, **said)


class Uses:
    """In the place of what /proc says."""

    def __init__(self, use: OwnUse | None) -> None:
        self.use = use

    def read(self, pids):
        return dict.fromkeys(pids, self.use)


def predictor(path=None, use: OwnUse | None = None, shipped=Path("/nonexistent")) -> Predictor:
    clock = iter(range(10_000))
    return Predictor(path, lambda: next(clock) * 0.5, Uses(use), shipped)


def sample(number: int = 1, device: DeviceSample | None = None) -> Telemetry:
    return Telemetry(number=number, devices=(device or DeviceSample(id="d", kind="cpu", age_s=0.0),))


# --- observed -----------------------------------------------------------------------------------------------------


def test_dyn15_the_ratio_is_to_the_fastest_that_ten_steps_in_a_row_have_been():
    pace = Pace()
    for step in range(CALM):
        assert pace.ratio() is None
        pace.add(step, 0.1)
    assert pace.ratio() == (1.0, 1.0, 1.0)
    for step in range(CALM, CALM + 5):
        pace.add(step, 0.25)
    assert pace.ratio() == pytest.approx((2.5, 2.5, 2.5))


def test_a_single_quick_step_is_no_baseline():
    pace = Pace()
    for step in range(CALM):
        pace.add(step, 0.001 if step == 4 else 0.1)
    assert pace.free_s == 0.1


def test_a_long_disturbance_does_not_become_the_normal():
    pace = Pace()
    for step in range(1000):
        pace.add(step, 0.1 if step < 20 else 0.2)
    assert pace.ratio() == pytest.approx((2.0, 2.0, 2.0))


def test_the_same_step_told_twice_counts_once():
    pace = Pace()
    for _ in range(50):
        pace.add(3, 0.1)
    assert pace.ratio() is None


def test_a_baseline_is_kept_for_each_plan_and_outlives_an_attempt():
    observed = Observed()
    wide = msgspec.structs.replace
    for step in range(12):
        observed.take([member("d", step=step, step_time_s=0.1)])
    target, report = member("d", step=3, step_time_s=0.3)
    again = wide(target, attempt=2), wide(report, attempt=2)
    for step in range(3, 9):
        found = observed.take([(again[0], wide(again[1], step=step))])
    assert found[1, 2].middle == pytest.approx(3.0)
    other = wide(again[0], plan=plan((0, 1), size=4))
    assert observed.take([(other, wide(again[1], step=9))]) == {}


def test_a_gang_that_is_spread_or_on_other_devices_now_is_slowed_by_no_neighbour():
    """The same plan, at first on two devices of this node, then with one of them elsewhere, then on slower ones."""
    observed, kinds = Observed(), {"d": "H200", "e": "H200", "f": "A100", "g": "A100"}
    for at, devices in enumerate(("de", "d", "fg")):
        for step in range(20):
            gang = [member(device, number, 2) for number, device in enumerate(devices)]
            said = {"step": 20 * at + step, "step_time_s": 0.1 * (1 + at)}
            gang[0] = member(devices[0], 0, 2, **said)
            found = observed.take(gang, kinds)
        assert found[1, 1].middle == 1.0, devices


def test_a_plan_that_was_made_for_a_neighbour_is_no_measure_of_it_until_that_has_gone():
    observed, seen = Observed(), []
    for at, (sizes, step_time_s) in enumerate(((1, 0.1), (1, 0.2), (2, 0.15), (2, 0.11), (2, 0.15), (1, 0.1))):
        for step in range(20):
            target, report = member("d", step=20 * at + step, step_time_s=step_time_s)
            revised = msgspec.structs.replace(report, revision=sizes - 1, plan=plan((0, sizes, 4)))
            found = observed.take([(target, revised)])
        seen.append(found[1, 1].middle if found else None)
    assert seen == [1.0, pytest.approx(2.0), None, 1.0, pytest.approx(0.15 / 0.11), 1.0]


def test_a_job_that_has_left_a_neighbour_has_a_pace_of_its_own_where_it_is():
    observed = Observed()
    for step in range(60):
        device, step_time_s, sizes = ("d", 0.1, 1) if step < 20 else ("d", 0.2, 1) if step < 40 else ("e", 0.11, 2)
        target, report = member(device, step=step, step_time_s=step_time_s)
        found = observed.take([(target, msgspec.structs.replace(report, plan=plan((0, sizes, 4))))])
    assert found[1, 1].middle == 1.0


def test_a_step_of_a_larger_batch_takes_longer_and_nobody_slows_it():
    observed = Observed()
    for step in range(40):
        found = observed.take([member("d", step=step, step_time_s=0.1 * (1 + step // 20), batch=8 * (1 + step // 20))])
    assert found[1, 1].middle == 1.0


def test_a_step_time_that_cannot_be_is_not_learned_from():
    observed = Observed()
    for step, step_time_s in enumerate([float("nan"), float("inf"), *[0.1] * 11]):
        found = observed.take([member("d", step=step, step_time_s=step_time_s)])
    assert found[1, 1] == pytest.approx((1.0, 1.0, 1.0))


# --- which model --------------------------------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path):
    folder = tmp_path / "shipped"
    folder.mkdir()
    file.write(folder / "cpu.npz", model(Hardware("cpu", ANY), trees=5))
    return folder


def test_dyn19_without_a_model_of_its_own_a_node_uses_the_generic_one(tmp_path, shipped):
    choice = choose(tmp_path, {"cpu": CPU}, shipped)
    assert choice.about == "cpu: a generic forest"
    assert choice.fallback == ""
    assert choice.models["cpu"].hardware.topology == ANY


def test_a_nodes_own_model_comes_first(tmp_path, shipped):
    file.write(tmp_path / "model.npz", model(CPU, trees=5))
    choice = choose(tmp_path, {"cpu": CPU}, shipped)
    assert (choice.about, choice.fallback) == ("cpu: this node's own forest", "")


@pytest.mark.parametrize("damage", ["another machine", "cut off", "open to others"])
def test_b59_a_model_that_cannot_be_used_is_told_with_what_is_used_instead(tmp_path, shipped, damage):
    path = tmp_path / "model.npz"
    file.write(path, model(Hardware("cpu", "96 cores") if damage == "another machine" else CPU, trees=5))
    if damage == "cut off":
        path.write_bytes(path.read_bytes()[:-100])
    if damage == "open to others":
        path.chmod(0o666)
    choice = choose(tmp_path, {"cpu": CPU}, shipped)
    assert str(path) in choice.fallback
    assert choice.fallback.endswith("Instead cpu: a generic forest")
    assert choose(tmp_path, {"cpu": CPU}, tmp_path / "none").about == "cpu: observed step times"


def test_other_kinds_have_their_step_times(tmp_path, shipped):
    choice = choose(None, {"H200": Hardware("H200", "8 devices")}, shipped)
    assert (choice.about, choice.models, choice.fallback) == ("H200: observed step times", {}, "")


def test_a_model_file_that_is_good_and_bad_by_turns_is_looked_at_ever_less_often(tmp_path):
    """Every look may be an event: here it changes every ten seconds for two hours."""
    file.write(tmp_path / "good", model(CPU, trees=5))
    found, told = predictor(tmp_path), []
    found._clock_s = iter(at * 0.5 for at in range(20_000)).__next__
    for at in range(2 * 7200):
        if at % 20 == 0:
            path = tmp_path / "model.npz"
            path.unlink(missing_ok=True)
            if at % 40:
                path.write_bytes(b"bad")
            else:
                os.link(tmp_path / "good", path)
        told.append(found.of(sample(at), []).fallback)
    assert sum(one != other for one, other in itertools.pairwise(told)) <= 8 * 12


def test_while_a_calibration_runs_nothing_is_learned_from_jobs(shipped):
    clock = iter(range(10_000))
    for calibrates in (True, False):
        found = Predictor(None, lambda: next(clock) * 0.5, Uses(None), shipped, lambda answer=calibrates: answer)
        for step in range(40):
            found.of(sample(step), [member("d", step=step, step_time_s=0.1)])
        assert (len(found.window) == 0) is calibrates


# --- all together -------------------------------------------------------------------------------------------------


def test_a_forest_that_does_not_trust_itself_is_not_heard(shipped):
    """Nearly all features are missing here; the step times of the job on the device speak instead."""
    found = predictor(use=None, shipped=shipped)
    for step in range(12):
        said = found.of(sample(step), [member("d", step=step, step_time_s=0.1)])
    assert said.devices[0].slowdown == Slowdown(
        device="d", ratio=1.0, low=1.0, high=1.0, confidence=0.6, source=Source.OBSERVED
    )
    for step in range(12, 40):
        said = found.of(sample(step), [member("d", step=step, step_time_s=0.15)])
    assert said.devices[0].slowdown.ratio == pytest.approx(1.5)
    assert said.devices[0].slowdown.contested
    assert said.predictor == "cpu: a generic forest"


def test_a_device_of_which_nothing_is_known_has_no_slowdown(shipped):
    unread = DeviceSample(id="d", kind="cpu")
    assert predictor(shipped=shipped).of(sample(1, unread), []).devices[0].slowdown is None
    assert predictor().of(sample(), []).devices[0].slowdown is None


def test_the_forest_speaks_where_it_knows_the_features(tmp_path):
    """Also before any step, as counters alone tell it; nobody has told it of the neighbour."""
    for wait, low, high in ((0.0, 1.0, 1.1), (60.0, 2.2, 2.8)):
        said = foretold(tmp_path, OwnUse(50.0, wait, 10.0))
        assert said.source is Source.FOREST
        assert low <= said.ratio <= high


def test_of_a_stage_that_sleeps_it_is_told_how_much_longer_it_computes_beside_what_a_step_feels(tmp_path):
    """For the pipeline, which would not move a layer for 1.4, and knows its stage by the time that it computes."""
    said = foretold(tmp_path, OwnUse(20.0, 60.0, 10.0))
    assert said.ratio == pytest.approx(1 / (1 - 0.3), abs=0.03)
    assert 2.2 <= said.stage_ratio <= 2.8
    assert said.low <= said.stage_low <= said.stage_ratio


def foretold(folder: Path, use: OwnUse) -> Slowdown:
    """By a forest that knows all features, of a device whose member runs and waits so."""
    file.write(folder / "model.npz", model(CPU, trees=20))
    busy, wait = {"own_busy_percent": use.busy_percent}, {"own_wait_percent": use.wait_percent}

    class All:
        def of(self, telemetry, now_s, own, gangs):
            return {"d": dict.fromkeys(NODE.names, 50.0) | {"loopback_bytes_per_s": 0.0} | busy | wait}

    found = predictor(folder, use)
    found._features = All()
    found._choose(sample(), 0.0)
    found._hardware = {"cpu": CPU}
    found._choice = choose(folder, {"cpu": CPU})
    return found.of(sample(), [member("d")]).devices[0].slowdown


def test_of_a_gang_on_several_devices_only_one_with_a_sign_of_others_is_blamed():
    stranger = Process(pid=9, whose="other")
    devices = (
        DeviceSample(id="d", kind="H200", age_s=0.1, processes=(stranger,)),
        DeviceSample(id="e", kind="H200", age_s=0.1, processes=()),
    )
    found = predictor()
    for step in range(30):
        both = [member("d", 0, 2, step=step, step_time_s=0.1 if step < 12 else 0.2), member("e", 1, 2)]
        said = found.of(Telemetry(number=step, devices=devices), both)
    assert said.devices[0].slowdown.ratio == pytest.approx(2.0)
    assert said.devices[1].slowdown is None


def test_what_undisturbed_devices_of_a_gang_are_like_is_learned_as_well():
    """A forest that has seen disturbed ones only takes all for disturbed."""
    found = predictor()
    for step in range(240):
        strangers = () if (calm := step < 120) else (Process(pid=9, whose="other"),)
        devices = (
            DeviceSample(id="d", kind="H200", age_s=0.1, processes=strangers),
            DeviceSample(id="e", kind="H200", age_s=0.1, processes=()),
        )
        both = [member("d", 0, 2, step=step, step_time_s=0.1 if calm else 0.2), member("e", 1, 2)]
        found.of(Telemetry(number=step, devices=devices), both)
    rows = found.window.rows()
    counts = rows.features[:, NODE.names.index("foreign_processes")]
    learned = [(count, round(float(ratio), 2)) for count, ratio in zip(counts, rows.slowdowns, strict=True)]
    assert {ratio for count, ratio in learned if not count} == {1.0}
    assert (1.0, 2.0) in learned
    assert sum(not count for count, _ in learned) < sum(count > 0 for count, _ in learned), "they crowd nobody out"


@pytest.mark.parametrize(
    ("name", "value"),
    [("own_wait_percent", 20.0), ("foreign_processes", 1.0), ("throttle_reasons", 2.0), ("steal_percent", 9.0)],
)
def test_signs_of_others(name, value):
    calm = dict.fromkeys(NODE.names)
    assert not is_disturbed(calm)
    assert is_disturbed({**calm, name: value})


def test_a_prediction_that_fails_costs_no_sample(tmp_path):
    class Node:
        devices = (DeviceInfo(id="GPU-a", kind="H200", index=0),)

        def __init__(self):
            self.samples = []

        def take_sample(self, telemetry, health):
            self.samples.append(telemetry)

        def members(self):
            raise ZeroDivisionError("none")

    async def scene(node) -> None:
        sampler = Sampler(Scripted(node.devices), node.devices)
        task = asyncio.create_task(sense(sampler, node, KnownGpus(tmp_path), 0.0, predictor()))
        while len(node.samples) < 3:
            assert not task.done()
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    node = Node()
    asyncio.run(scene(node))
    assert [sample.number for sample in node.samples[:3]] == [1, 2, 3]
    assert {sample.fallback for sample in node.samples} == {
        "the prediction failed: ZeroDivisionError: none. Nothing is known of neighbours"
    }


def test_dyn19_the_models_that_come_along_can_be_used():
    """One for CPU devices with any number of cores, and one on the published schema."""
    for cores in (1, 2, 96):
        choice = choose(None, {"cpu": Hardware("cpu", f"{cores} cores")})
        assert (choice.about, choice.fallback) == ("cpu: a generic forest", "")
    owner = (SHIPPED.stat().st_uid,)
    assert file.read(SHIPPED / "dynpipe.npz", DYNPIPE, owners=owner).schema is DYNPIPE
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 1 << 20


def test_the_model_that_comes_along_knows_a_core_that_is_shared_from_one_that_is_not():
    found = choose(None, {"cpu": CPU}).models["cpu"]
    known = dict(zip(NODE.names, map(float, found.medians), strict=True))
    ratios = []
    for wait in (5.0, 30.0, 50.0, 70.0):
        own = {"own_wait_percent": wait, "own_wait_mean_percent": wait, "own_busy_percent": 100 - wait}
        ratios.append(found.predict({**known, **own, "foreign_busy_percent": wait}).slowdown)
    assert ratios == sorted(ratios)
    assert ratios[0] < 1.5 < ratios[2]


def test_of_a_core_that_has_no_member_nothing_is_said(tmp_path):
    """The next member need not run there."""
    file.write(tmp_path / "model.npz", model(CPU, trees=20))
    busy = DeviceSample(id="d", kind="cpu", age_s=0.1, values={"busy_percent": 100.0})
    assert predictor(tmp_path).of(sample(1, busy), []).devices[0].slowdown is None
