"""What a calibration makes of its measurements: situations by seed, slowdowns by steps, rows that belong together."""

import itertools

import numpy as np
import pytest
from forests import CPU, rows

from agent.forest.campaign import MOST, STRENGTHS, Moment, Record, as_rows, draw
from agent.forest.interferer import KINDS
from agent.forest.model import Hardware
from agent.forest.rows import both, load, save
from agent.forest.schema import NODE
from agent.forest.workbench import LINK, Disturbance, Step
from agent.telemetry.sampler import EVERY_S

ALL = [*KINDS, LINK]
HOG = (Disturbance("compute", 1.0, 0),)


def first(seed: int, count: int = 40):
    return list(itertools.islice(draw(seed, (0, 1), ALL), count))


def test_dyn17_situations_are_the_same_for_a_seed_and_others_for_another():
    assert first(3) == first(3)
    assert first(3) != first(4)


def test_dyn17_every_kind_comes_alone_at_first_then_one_to_three_at_once():
    found = first(0, 200)
    assert sorted(one.kind for (one,) in found[: len(ALL)]) == sorted(ALL)
    assert {len(situation) for situation in found} == {1, 2, 3}
    assert {one.strength for situation in found for one in situation} == set(STRENGTHS)
    assert all(len({one.kind for one in situation}) == len(situation) for situation in found)
    assert all((one.core is None) == (one.kind == LINK) for situation in found for one in situation)


def record(alone_s: float, beside_s: float, ran_s: float) -> Record:
    """Ten seconds alone, ten beside a hog on the first core: busy times of the first stage; the second is never slowed.
    ran_s: of a step, on the core."""
    found, now_s = Record(), 0.0
    while now_s < 20:
        busy_s = alone_s if now_s < 10 else beside_s
        now_s += busy_s
        found.steps.setdefault((32, 0), []).append(Step(0, now_s, busy_s, busy_s, ran_s))
        found.steps.setdefault((32, 1), []).append(Step(1, now_s, busy_s, alone_s, ran_s))
    for at in range(1, round(20 / EVERY_S)):
        disturbances = HOG if at * EVERY_S > 10 else ()
        found.moments.append(Moment(at * EVERY_S, 32, disturbances, ({"busy_percent": 1.0}, {"busy_percent": 2.0})))
    return found


def test_dyn15_a_slowdown_is_1_alone_and_beside_a_hog_what_the_stage_then_takes():
    found = as_rows(record(0.1, 0.25, 0.1), CPU)
    kinds = np.array([one.kinds for one in found.situations])
    first_stage = found.features[:, NODE.names.index("busy_percent")] == 1.0
    assert found.slowdowns[first_stage & (kinds == "alone")] == pytest.approx(1.0)
    assert found.slowdowns[~first_stage] == pytest.approx(1.0)
    beside = found.slowdowns[first_stage & (kinds == "compute")]
    assert beside[2:-1] == pytest.approx(2.5)


def test_a_machine_that_was_never_calm_is_judged_by_the_time_on_its_cores():
    """Alone a step took 0.2 s, but only 0.1 s of it on the core: somebody else was there."""
    found = as_rows(record(0.2, 0.2, 0.1), CPU)
    assert found.slowdowns.min() == pytest.approx(1.0)
    quiet = record(0.2, 0.2, 0.1)
    for key, steps in quiet.steps.items():
        quiet.steps[key] = [Step(*step[:3], 0.1, 0.1) if at % 10 == 0 else step for at, step in enumerate(steps)]
    assert np.median(as_rows(quiet, CPU).slowdowns) == pytest.approx(1.95, abs=0.1)


def test_a_stage_that_was_starved_makes_no_row():
    found = as_rows(record(0.1, 0.1 * MOST * 2, 0.1), CPU)
    assert found.slowdowns.max() <= MOST


def test_rows_come_back_from_their_file_and_are_added_to_others_of_the_same_machine(tmp_path):
    one, two = rows(20, seed=1), rows(30, seed=2)
    save(tmp_path / "rows.npz", one)
    again = load(tmp_path / "rows.npz")
    assert again.situations == one.situations
    assert np.array_equal(again.features, one.features, equal_nan=True)
    assert len(both(again, two)) == 50
    with pytest.raises(ValueError, match="do not belong together"):
        both(one, rows(20, hardware=Hardware("cpu", "96 cores")))


def test_a_file_of_other_rows_is_refused(tmp_path):
    (tmp_path / "rows.npz").write_bytes(b"none")
    with pytest.raises((ValueError, OSError)):
        load(tmp_path / "rows.npz")
