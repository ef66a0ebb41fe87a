"""`after`, `begin`, `array` and `time_limit`: every form means one thing, and what means none is refused."""

import pytest

from scheduler.core.errors import BadSpec
from scheduler.jobfile import parse_document


def job(**fields):
    return parse_document({"name": "a", "entrypoint": "m:f", "workdir": "/w", **fields})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (10, 600), ("10", 600), ("30:00", 1800), ("4:00", 240), ("1:00:00", 3600), ("2-12", 216_000),
        ("2-12:30", 217_800), ("1-00:00:00", 86_400), ("90m", 5400), ("1w", 604_800), ("1d12h", 129_600),
    ],
)  # fmt: skip
def test_b44_time_limits_mean_what_slurm_means(text, seconds):
    assert job(time_limit=text).time_limit_s == seconds


@pytest.mark.parametrize("text", ["0", 0, "-5", -5, "1:99", "١٠", "", "UNLIMITED", 1.5, True, [], "soon"])
def test_b44_anything_else_is_refused_and_never_unlimited(text):
    with pytest.raises(BadSpec, match="time_limit"):
        job(time_limit=text)


@pytest.mark.parametrize("text", ["2030-01-31", "2030-01-31T08:00:00", "tomorrow", 5, "1960-01-01T00:00:00Z"])
def test_a_deadline_is_a_moment_with_a_zone(text):
    assert job(deadline="2030-01-31T08:00:00Z").deadline_us == 1_896_076_800_000_000
    with pytest.raises(BadSpec, match="deadline"):
        job(deadline=text)


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        (3, ((3, "ok"),)),
        ([3, 4, 3], ((3, "ok"), (4, "ok"))),
        ({"ok": 3, "any": [4]}, ((3, "ok"), (4, "any"))),
        ("afterok:3:4,afterany:5", ((3, "ok"), (4, "ok"), (5, "any"))),
    ],
)
def test_jobs_to_wait_for(given, waits):
    assert job(after=given).after == waits


@pytest.mark.parametrize("given", [0, -1, "x", "afternotok:3", "afterok", {"never": 3}, [None], True, 2**63])
def test_other_dependencies_are_refused(given):
    with pytest.raises(BadSpec, match="after"):
        job(after=given)


@pytest.mark.parametrize(
    ("given", "tasks", "most"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("0-9:5%2", (0, 5), 2),
        ("1,5,7-8", (1, 5, 7, 8), None),
        ([4, 2], (4, 2), None),
    ],
)
def test_arrays(given, tasks, most):
    found = job(array=given)
    assert (found.array, found.max_parallel) == (tasks, most)


@pytest.mark.parametrize("given", ["", "3-1", "1-3%0", "1-3%", "a", "0-1000000", [], [-1], "1,1", "0-9:0", 3, None])
def test_other_arrays_are_refused(given):
    with pytest.raises(BadSpec, match="array"):
        job(array=given)


def test_begin_is_a_moment_with_a_zone():
    assert job(begin="1970-01-02T01:00:00+01:00").begin_us == 86_400 * 10**6
    for given in ("2030-01-01T00:00:00", "tomorrow", 5, "2030-13-01T00:00:00Z", "1969-01-01T00:00:00Z"):
        with pytest.raises(BadSpec, match="begin"):
            job(begin=given)
