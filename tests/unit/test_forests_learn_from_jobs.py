"""Refitting online: from what running jobs show, in a process of its own, and only where the new forest is better."""

import asyncio
import os

import numpy as np
import pytest
from forests import CPU, model, rows

from agent.forest import calibrating, file, refit
from agent.forest.model import Hardware
from agent.forest.refit import MOST_ROWS, PATIENCE_S, ROW_S, Window, refitted
from agent.forest.rows import save
from agent.forest.schema import NODE


def window(count: int = 240, tilt: float = 1.0) -> Window:
    """Rows such as a job shows; tilt: how much slower all of it is than any forest has learned so far."""
    found, source = Window(), rows(count, seed=7)
    for at in range(count):
        values = dict(zip(NODE.names, map(float, source.features[at]), strict=True))
        found.take("d", CPU, values, tilt * float(source.slowdowns[at]), at * ROW_S)
    return found


def test_a_device_gives_a_row_every_few_seconds_and_no_more():
    found = Window()
    for at in range(100):
        found.take("d", CPU, {}, 1.0, at * ROW_S / 10)
    assert len(found) == 10


def test_the_window_slides_and_begins_anew_on_other_hardware():
    found = Window()
    for at in range(MOST_ROWS + 50):
        found.take("d", CPU, {"busy_percent": float(at)}, 1.0, at * ROW_S)
    assert len(found) == MOST_ROWS
    assert found.rows().features[0][NODE.names.index("busy_percent")] == 50.0
    found.take("e", Hardware("cpu", "96 cores"), {}, 1.0, 0.0)
    assert len(found) == 1


def test_two_kinds_of_devices_in_a_node_do_not_keep_each_other_from_being_learned():
    found, large, small = Window(), Hardware("H200", "4 devices"), Hardware("A100", "4 devices")
    for at in range(100):
        found.take("d", large, {}, 1.0, at * ROW_S)
        found.take("e", small, {}, 2.0, at * ROW_S + 1)
    assert (len(found), found.hardware) == (100, large)
    for at in range(100, 100 + int(PATIENCE_S / ROW_S) + 50):
        found.take("e", small, {}, 2.0, at * ROW_S + 1)
    assert (len(found), found.hardware) == (51, small)


def test_rows_of_one_stretch_of_time_are_held_out_together():
    groups = window(240).rows().groups("both")
    assert len(set(groups.tolist())) == 240 * ROW_S / refit.CHUNK_S


def test_dyn20_a_new_forest_is_taken_where_the_present_one_has_become_wrong():
    present = model(CPU, trees=10)
    found, fresh = refitted(window(tilt=1.6).rows(), None, present)
    assert found.taken
    assert found.mape < found.present / 2
    assert fresh.hardware == CPU


def test_it_is_judged_by_rows_that_it_has_not_seen():
    """Noise alone can be learned by heart, and then predicts nothing."""
    noise = window(240).rows()
    random = np.random.default_rng(0)
    object.__setattr__(noise, "slowdowns", random.permutation(noise.slowdowns))
    found, _ = refitted(noise, None, model(CPU, trees=10))
    assert found.mape > 20


def test_from_calm_times_alone_no_forest_is_made():
    """It would say of everything what is true of nearly everything, and be heard before step times are."""
    calm, source = Window(), rows(240, seed=7)
    for at in range(240):
        values = dict(zip(NODE.names, map(float, source.features[at]), strict=True))
        calm.take("d", CPU, values, 1.02 + 0.001 * (at % 2), at * ROW_S)
    found, _ = refitted(calm.rows(), None, None)
    assert found.mape < found.present / 2
    assert not found.taken


def test_a_present_forest_that_is_right_stays():
    found, _ = refitted(window().rows(), None, model(CPU, trees=60))
    assert not found.taken


def test_what_was_calibrated_is_learned_from_as_well():
    """The window alone knows calm times only."""
    calm = Window()
    source = rows(240, seed=7)
    wait = source.features[:, NODE.names.index("own_wait_percent")]
    for at in np.flatnonzero(wait < 20):
        values = dict(zip(NODE.names, map(float, source.features[at]), strict=True))
        calm.take("d", CPU, values, float(source.slowdowns[at]), at * ROW_S)
    _, alone = refitted(calm.rows(), None, None)
    _, both = refitted(calm.rows(), rows(240), None)
    disturbed = {"own_wait_percent": 60.0, "loopback_bytes_per_s": 0.0}
    assert alone.predict(disturbed).slowdown < 1.8
    assert both.predict(disturbed).slowdown == pytest.approx(2.5, rel=0.15)


@pytest.mark.parametrize("tilt", [1.0, 1.6])
def test_a_child_process_writes_the_new_model_if_it_is_taken(tmp_path, tilt):
    save(tmp_path / "rows.npz", rows(30))
    found = asyncio.run(refit.refit(tmp_path, window(tilt=tilt), model(CPU, trees=60)))
    assert found.taken is (tilt > 1)
    assert (tmp_path / "online.npz").exists() is found.taken
    if found.taken:
        assert file.read(tmp_path / "online.npz", NODE, CPU).schema is NODE


def test_a_child_that_fails_changes_nothing(tmp_path):
    (tmp_path / "rows.npz").write_bytes(b"no rows")
    assert asyncio.run(refit.refit(tmp_path, window(), None)) is None
    assert not (tmp_path / "online.npz").exists()


def test_with_too_few_rows_nothing_is_started(tmp_path):
    async def scene() -> None:
        task = asyncio.create_task(refit.refit_regularly(tmp_path, Window(), lambda: None, 0.0))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scene())
    assert list(tmp_path.iterdir()) == []


def test_what_was_learned_is_dropped_where_a_calibration_runs_or_has_ended_meanwhile(tmp_path):
    """It measured later, and on purpose."""
    assert asyncio.run(refit.refit(tmp_path, window(tilt=1.6), model(CPU, trees=60), lambda: True)).taken is False
    assert list(tmp_path.glob("online.npz")) == list(tmp_path.glob("candidate.npz")) == []

    def calibrated() -> bool:
        save(tmp_path / "rows.npz", rows(30))
        return False

    assert asyncio.run(refit.refit(tmp_path, window(tilt=1.6), model(CPU, trees=60), calibrated)).taken is False
    assert list(tmp_path.glob("online.npz")) == []


def test_nothing_is_refitted_while_a_calibration_runs(tmp_path):
    async def scene() -> list[object]:
        asked: list[object] = []

        def calibrating() -> bool:
            asked.append(None)
            if len(asked) == 3:
                task.cancel()
            return True

        task = asyncio.create_task(refit.refit_regularly(tmp_path, window(), lambda: None, 0.0, calibrating))
        await asyncio.gather(task, return_exceptions=True)
        return asked

    assert len(asyncio.run(scene())) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_is_known_on_the_machine_for_as_long_as_it_runs():
    name = f"\0jct-test {os.getpid()}"
    assert not calibrating.runs_here(name)
    with calibrating.calibration(name) as alone:
        assert alone
        assert calibrating.runs_here(name)
        with calibrating.calibration(name) as second:
            assert not second
    assert not calibrating.runs_here(name)
