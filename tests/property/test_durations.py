"""Durations mean what Slurm's manual says, and nothing is read as something else (FAULTS B44)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.durations import MAX_DURATION_S, BadDuration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("30:00", 1_800),
        ("4:00", 240),
        ("1:00:00", 3_600),
        ("2-12", 2 * 86_400 + 12 * 3_600),
        ("2-12:30", 2 * 86_400 + 12 * 3_600 + 1_800),
        ("1-00:00:00", 86_400),
        ("90m", 5_400),
        ("1d12h", 129_600),
        ("1w", 604_800),
        ("0", 0),
        ("90:00", 5_400),
        ("100:00:00", 360_000),
    ],
)
def test_slurms_six_formats_and_units(text, seconds):
    assert parse_duration(text, bare="minutes") == seconds


def test_a_bare_number_means_seconds_only_where_that_is_asked_for():
    assert parse_duration("10", bare="seconds") == 10


@pytest.mark.parametrize(
    "text",
    [
        "-5",
        "1:99",
        "1:60:00",
        "1-24",
        "1-2:60",
        "١٠",
        "",
        " ",
        "UNLIMITED",
        "1h1d",
        "1.5h",
        "1:2:3:4",
        "5 m",
        "m",
        "1-",
        "+5",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(BadDuration):
        parse_duration(text, bare="minutes")


def test_more_than_ten_years_is_refused():
    with pytest.raises(BadDuration, match="ten years"):
        parse_duration("600w", bare="minutes")


@given(st.integers(0, 3_000 * 86_400))
def test_what_is_printed_reads_back(seconds):
    assert parse_duration(format_duration(seconds), bare="minutes") == seconds


@given(*[st.integers(0, 99)] * 4)
def test_units_add_up(days, hours, minutes, seconds):
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration(text, bare="seconds") == days * 86_400 + hours * 3_600 + minutes * 60 + seconds


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_bad_duration(text):
    with contextlib.suppress(BadDuration):
        assert 0 <= parse_duration(text, bare="minutes") <= MAX_DURATION_S
