"""The queue as a table: one row a job, as wide as asked by display width, never wrapped, no cursor moved."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from scheduler.cli.grid import grid
from scheduler.cli.table import DEMO_COLUMNS, LS_COLUMNS, job_table, short_duration

GOLDEN = Path(__file__).parent / "golden"
NOW = "2027-01-15T08:00:00Z"


def job(id: int, name: str, state: str, **more: object) -> dict:
    return {
        "id": id, "name": name, "team": "nlp", "priority": 50, "state": state, "reason": None, "nodes": [],
        "gpus": {"have": 0, "min": 1, "max": 4}, "plan": None, "step": None, "total_steps": None, "loss": None,
        "eta": None, **more,
    }  # fmt: skip


def plan(stages: int, count: int, replicas: int = 1) -> dict:
    return {"stages": stages, "micro_batches": count, "micro_batch_size": 2, "replicas": replicas}


JOBS = [
    job(
        1, "gpt-stdlib", "RUNNING", gpus={"have": 2, "min": 1, "max": 4}, plan=plan(2, 8), step=123, total_steps=300,
        loss=3.14159, nodes=["n0", "n1"],
        eta={"start": None, "finish_earliest": "2027-01-15T08:04:00Z", "finish_latest": "2027-01-15T08:05:00Z"},
    ),
    job(
        2, "a-rather-long-name-of-a-job-that-nobody-shortened", "CHECKPOINTING", team="computer-vision",
        gpus={"have": 4, "min": 4, "max": 4}, plan=plan(2, 16, 2), step=10_000, total_steps=30_000, loss=0.5,
        nodes=["node-with-a-long-name"],
        eta={"start": None, "finish_earliest": "2027-01-15T11:00:00Z", "finish_latest": "2027-01-15T11:45:00Z"},
    ),
    job(
        13, "дата 🚀 漢字漢字", "PENDING", priority=90, gpus={"have": 0, "min": 4, "max": 4},
        reason={"code": "Priority", "text": "behind 3 jobs of higher priority", "since": NOW},
        eta={"start": "2027-01-15T08:10:00Z", "finish_earliest": None, "finish_latest": None},
    ),
    job(
        140, "evil\x1b[2J\nname", "HELD",
        reason={"code": "Held", "text": "held by eva; release it with: jct release 140", "since": NOW},
    ),
    job(
        141, "over", "COMPLETED", step=300, total_steps=300,
        reason={"code": "COMPLETED", "text": "finished", "since": NOW},
    ),
]  # fmt: skip


def drawn(width: int | None, columns=LS_COLUMNS, jobs=JOBS) -> list[str]:
    console = Console(width=width or 10_000, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(job_table(jobs, NOW, width, columns))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(("name", "columns"), [("ls", LS_COLUMNS), ("demo", DEMO_COLUMNS)])
@pytest.mark.parametrize("width", [80, 120])
def test_the_table_looks_as_it_did(name, columns, width):
    assert "\n".join(drawn(width, columns)) + "\n" == (GOLDEN / f"{name}-{width}.txt").read_text()


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_printed_is_what_is_drawn_live(width, capsys):
    job_table(JOBS, NOW, width).print()
    assert capsys.readouterr().out.splitlines() == drawn(width)


@pytest.mark.parametrize("columns", [LS_COLUMNS, DEMO_COLUMNS])
@pytest.mark.parametrize("width", [40, 60, 79, 80, 81, 100, 120, 200])
def test_every_row_is_one_line_and_fits(columns, width):
    lines = drawn(width, columns)
    assert len(lines) == 1 + len(JOBS)
    assert max(map(cell_len, lines)) <= width


def test_without_a_width_everything_is_there():
    lines = drawn(None)
    assert len(lines) == 1 + len(JOBS)
    assert "a-rather-long-name-of-a-job-that-nobody-shortened" in lines[2]
    assert "Priority: behind 3 jobs of higher priority (starts in ~10m)" in lines[3]


def test_escapes_are_shown_not_obeyed():
    assert "evil\\x1b[2J\\nname" in drawn(None)[4]


def test_the_demo_shows_all_its_columns_at_80():
    assert drawn(80, DEMO_COLUMNS)[0].split() == [column.title for column in DEMO_COLUMNS]


def test_an_empty_queue_has_a_header():
    assert drawn(80, jobs=[])[0].split()[:2] == ["ID", "NAME"]


@given(st.text(max_size=30), st.text(max_size=30), st.integers(30, 150))
def test_any_name_is_one_row_that_fits(name, text, width):
    lines = drawn(width, jobs=[job(1, name, "PENDING", reason={"code": "X", "text": text, "since": NOW})])
    assert len(lines) == 2
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("earliest", "latest", "text"),
    [("08:00:21", "08:02:00", "21s-2m"), ("08:04:00", "08:05:00", "4-5m"), ("08:05:00", "08:05:10", "~5m"),
     ("08:00:00", "08:05:00", "0-5m"), ("07:59:00", "08:00:40", "0-40s")],
)  # fmt: skip
def test_the_end_is_a_range_whose_two_ends_say_something(earliest, latest, text):
    eta = {"start": None, "finish_earliest": f"2027-01-15T{earliest}Z", "finish_latest": f"2027-01-15T{latest}Z"}
    (end,) = [column for column in LS_COLUMNS if column.title == "END~"]
    assert end.cell(job(1, "x", "RUNNING", eta=eta), NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-3, "0s"), (59.6, "60s"), (119, "119s"), (240, "4m"), (7_200, "2h"), (200_000, "2d")],
)
def test_durations_are_short(seconds, text):
    assert short_duration(seconds) == text


def test_a_plain_list_cuts_its_last_column_to_the_width():
    rows = [["1", "the training has finished"], ["2", "x"]]
    cut = [" ".join(text for text, _ in line) for line in grid(("#", "MESSAGE"), rows, 12).lines()]
    assert cut == ["# MESSAGE   ", "1 the train…", "2 x         "]
    assert "1 the training has finished" in [
        " ".join(text for text, _ in line) for line in grid(("#", "MESSAGE"), rows).lines()
    ]
