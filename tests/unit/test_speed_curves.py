"""Curves of step time through few measured rows."""

import math
import random
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed_curves import DATA, read
from policies.jct.speed import FAMILIES, Way, fit

SHAPES = st.lists(st.integers(1, 8), min_size=1, max_size=8).map(tuple)


def test_one_row_tells_that_more_devices_are_faster_but_not_in_proportion() -> None:
    curve = fit([(Way((1,)), 1.0)])
    times = [curve.step_time_s(Way((n,))) for n in (1, 2, 4, 8)]
    assert times[0] == pytest.approx(1.0, rel=0.02)
    assert times == sorted(times, reverse=True)
    assert times[-1] > 1.0 / 8


def test_far_nodes_are_slower_than_one() -> None:
    curve = fit([(Way((4,)), 0.3)])
    assert curve.step_time_s(Way((8,))) < curve.step_time_s(Way((4, 4))) < curve.step_time_s(Way((1,) * 8))


def test_a_job_that_does_not_scale_is_seen_as_one_from_its_second_row() -> None:
    curve = fit([(Way((1,)), 1.0), (Way((4,)), 0.95)])
    assert curve.step_time_s(Way((8,))) > 0.8
    assert fit([(Way((1,)), 1.0)]).step_time_s(Way((8,))) < 0.5


@given(st.lists(st.tuples(st.builds(Way, SHAPES, st.sampled_from(FAMILIES[:-1])), st.floats(1e-3, 1e3)), min_size=1,
                max_size=6), SHAPES)  # fmt: skip
def test_whatever_was_measured_predictions_are_times(rows: list[tuple[Way, float]], shape: tuple[int, ...]) -> None:
    seconds = fit(rows).step_time_s(Way(shape))
    assert 0 < seconds < math.inf


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_rows_that_are_no_times_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        fit([(Way((1,)), seconds)])
    with pytest.raises(ValueError, match="at least one row"):
        fit([])


@pytest.mark.parametrize("model", ["bert", "gpt2", "llama7", "roberta"])
def test_five_rows_of_a_known_model_tell_the_rest_within_a_tenth(model: str) -> None:
    rows = read(Path(DATA) / f"{model}-placements.csv")
    chosen = random.Random(0).sample(range(len(rows)), 5)
    curve = fit([rows[number] for number in chosen])
    rest = [row for number, row in enumerate(rows) if number not in chosen]
    assert median(abs(curve.step_time_s(way) / seconds - 1) for way, seconds in rest) <= 0.10
