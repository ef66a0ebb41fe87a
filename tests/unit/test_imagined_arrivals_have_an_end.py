"""Jobs that a forecast imagines come at the rate of late, but a burst does not go on for ever."""

from msgspec.structs import replace

from scheduler.forecast.fork import Arrival
from scheduler.forecast.futures import LEAST_ARRIVALS, MOST_TIMES, Arrivals
from scheduler.protocol.spec import JobSpec

NOW_US = 10**12


def arrivals(*moments_us: int) -> Arrivals:
    spec = JobSpec(name="a", workdir="/", entrypoint="m:f")
    return Arrivals([Arrival(moment, "eva", "k", spec) for moment in moments_us], NOW_US, seed=1)


def test_a_deadline_is_as_far_from_a_jobs_submission_as_it_was():
    submitted = [NOW_US - 10**9 * k for k in range(20, 0, -1)]
    spec = JobSpec(name="a", workdir="/", entrypoint="m:f")
    past = [Arrival(at, "eva", "k", replace(spec, deadline_us=at + 5 * 10**8)) for at in submitted]
    found = Arrivals(past, NOW_US, seed=1)
    for _ in range(20):
        comes_us = found.next_us
        assert found.pop()[1].deadline_us == comes_us + 5 * 10**8


def count(found: Arrivals) -> int:
    seen = 0
    while found.next_us is not None:
        found.pop()
        seen += 1
    return seen


def test_too_few_tell_nothing():
    assert count(arrivals(*[NOW_US - 10**9] * (LEAST_ARRIVALS - 1))) == 0


def test_a_burst_at_one_moment_does_not_go_on_for_ever():
    assert count(arrivals(*[NOW_US] * 20)) == MOST_TIMES * 20


def test_others_come_as_far_apart_as_those_before_them():
    found = arrivals(*(NOW_US - 10**9 * k for k in range(20, 0, -1)))
    moments = []
    while found.next_us is not None:
        moments.append(found.next_us)
        found.pop()
    assert moments == [NOW_US + 10**9 * k for k in range(1, MOST_TIMES * 20 + 1)]
