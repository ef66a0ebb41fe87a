from hypothesis import given
from hypothesis import strategies as st

from policies.schedules.catalogue import FAMILIES, make_schedule
from policies.schedules.validate import validate


@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 9), st.integers(1, 30))
def test_every_schedule_is_complete_ordered_and_free_of_deadlock(name: str, ranks: int, microbatches: int) -> None:
    footprint = validate(make_schedule(name, ranks, microbatches))
    assert all(0 < peak <= microbatches for peak in footprint.peak_activations)
