"""The floor of a loss is fitted to a curve that does not grow with the training."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.convergence import loss_floor
from worker.convergence import Curve


@given(count=st.integers(0, 300), most=st.integers(2, 20))
def test_what_stays_is_evenly_spaced_and_begins_with_the_first(count: int, most: int) -> None:
    curve = Curve(most)
    for step in range(count):
        curve.take(float(step))
    assert len(curve.points) <= most
    if count:
        every = max(1, int(curve.points[1])) if len(curve.points) > 1 else count
        assert curve.points == [float(step) for step in range(0, count, every)]
        assert 2 * len(curve.points) >= min(count, most)


def test_a_thinned_curve_has_the_floor_of_the_whole() -> None:
    losses = [1 / (0.02 * step + 0.5) + 0.3 for step in range(5000)]
    curve = Curve()
    for loss in losses:
        curve.take(loss)
    assert loss_floor(curve.points) == pytest.approx(0.3, abs=1e-3)
