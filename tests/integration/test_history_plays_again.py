"""The history of a live cluster: complete, one row a job, and a workload that the simulator plays again."""

import csv
import json

import pytest

from scheduler.cli.history import TITLES, cells
from scheduler.store.tokens import Role


@pytest.fixture
def played(jct, living, job_file, tmp_path):
    """Two jobs that need the whole cluster one after the other, a small one, and one that is cancelled unseen."""
    path = job_file("work: {total: 80 steps}")
    small = path.read_text()
    whole = small.replace("{min: 1, max: 2}", "{min: 4, max: 4}")
    ids = []
    for text in (whole, whole, small):
        path.write_text(text)
        ids.append(int(jct("submit", "-q", path)[1]))
    living.advance(1.0)
    path.write_text(small)
    cancelled = jct("submit", "-q", "--begin", "now+2h", path)[1].strip()
    jct("cancel", cancelled)
    while any(living.state.jobs[id].ended_us is None for id in ids):
        living.advance(1.0, 0.25)
    return ids


def test_every_ended_job_is_one_row_with_parts_that_sum(jct, living, played, tmp_path):
    file = tmp_path / "history.jsonl"
    code, out, err = jct("history", "--export", file)
    assert (code, out) == (0, "")
    assert "4 jobs" in err
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["job"] for row in rows] == [*played, played[-1] + 1]
    for row in rows:
        parts = ("queueing_s", "startup_s", "training_s", "preemptions_s", "cleanup_s")
        assert sum(row[part] for part in parts) == pytest.approx(row["jct_s"])
    assert [row["result"] for row in rows] == ["COMPLETED"] * 3 + ["CANCELLED"]
    assert rows[0]["steps"] == 80
    [run] = rows[0]["runs"]
    assert (run["kind"], run["per_node"], run["steps"]) == ("fake", [2, 2], 79)
    assert rows[3]["runs"] == []


def test_whether_a_range_held_is_asked_of_jobs_that_completed(jct, played):
    row = json.loads(jct("history", "--json")[1])["jobs"][-1]
    missed = dict.fromkeys(("earliest", "likely", "latest"), "2001-01-01T00:00:00.000000Z")
    held = {"earliest": row["submitted"], "likely": row["ended"], "latest": row["ended"]}
    told = {
        result: [cells({**row, "result": result, "foreseen": one})[TITLES.index("IN ETA")] for one in (missed, held)]
        for result in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT")
    }
    assert told == {"COMPLETED": ["no", "yes"], "CANCELLED": ["-", "-"], "FAILED": ["-", "-"], "TIMEOUT": ["-", "-"]}


@pytest.mark.parametrize("name", ["history.jsonl", "history.csv"])
def test_the_simulator_plays_it_again(jct, living, played, tmp_path, name):
    file = tmp_path / name
    jct("history", "--export", file)
    call = ("simulate", file, "--nodes", "2x2", "--policy", "fifo", "--round", "1", "--json")
    code, out, err = jct(*call)
    assert code == 0, err
    again = json.loads(out)["fifo"]
    rows = {row["job"]: row for row in json.loads(jct("history", "--json")[1])["jobs"]}
    assert (again["jobs"], again["left_out"]) == (3, {"no-step": 1})
    for id in played[:2]:
        assert again["jcts_s"][f"gpt-{id}"] == pytest.approx(rows[id]["jct_s"], rel=0.15)


def test_a_job_whose_range_was_changed_before_it_ended_is_played_on_what_it_had(jct, living, job_file, tmp_path):
    path = job_file("work: {total: 400 steps}\ncheckpoint: {dir: /tmp/changed}")
    id = jct("submit", "-q", path)[1].strip()
    living.advance(8.0)
    assert jct("update", id, "--gpus", "4")[0] == 0
    jct("cancel", id)
    living.advance(3.0)
    file = tmp_path / "history.jsonl"
    jct("history", "--export", file)
    row = json.loads(file.read_text().splitlines()[-1])
    assert (row["gpus_min"], [sum(run["per_node"]) for run in row["runs"]]) == (4, [2])
    code, out, err = jct("simulate", file, "--nodes", "2x2", "--policy", "fifo", "--round", "1", "--json")
    assert (code, json.loads(out)["fifo"]["jobs"]) == (0, 1), err


def test_the_csv_has_flat_columns(jct, played, tmp_path):
    jct("history", "--export", tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"job", "name", "team", "submitted", "ended", "jct_s", "gpu_s", "foreseen_likely", "runs"} <= set(rows[0])


def test_the_table_is_newest_first(jct, played):
    lines = jct("history", "--limit", "2", "-w", "80")[1].splitlines()
    assert lines[0].split()[:3] == ["ID", "TEAM", "RESULT"]
    assert [line.split()[0] for line in lines[1:]] == [str(played[-1] + 1), str(played[-1])]
    assert max(map(len, lines)) <= 80


def test_pages_hold_each_job_once_and_teams_see_their_own(jct, living, played, monkeypatch):
    monkeypatch.setattr("scheduler.cli.history.PAGE", 1)
    assert len(json.loads(jct("history", "--json")[1])["jobs"]) == 4
    monkeypatch.setenv("JCT_TOKEN", living.token("rob", "vision", Role.USER))
    assert json.loads(jct("history", "--json")[1])["jobs"] == []


def test_what_cannot_be_played_is_said(jct, played, tmp_path):
    file = tmp_path / "history.jsonl"
    jct("history", "--export", file)
    code, _, err = jct("simulate", file, "--nodes", "1x2")
    assert code == 2
    assert "ran on 4 gpu" in err.replace("\n", " ") or "has 2 gpu" in err
    file.write_text('{"v": 1}\n')
    assert jct("simulate", file)[0] == 2


def test_jobs_that_cannot_be_played_are_counted_with_the_reason(jct, played, tmp_path):
    file = tmp_path / "history.jsonl"
    jct("history", "--export", file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[2]["runs"] = []  # as of a job that made a single step
    file.write_text("\n".join(map(json.dumps, rows)))
    code, out, err = jct("simulate", file, "--nodes", "2x2", "--policy", "fifo", "--round", "1")
    assert code == 0, err
    assert out.splitlines()[-1] == (
        "2 jobs left out: 1 made too few steps to tell their speed, 1 never made a step"
    )
    file.write_text("\n".join(map(json.dumps, rows[2:])))
    code, _, err = jct("simulate", file)
    assert code == 2
    assert "2 jobs left out" in err


def test_what_is_simulated_fits_a_terminal_and_is_not_probed(jct, played, tmp_path):
    file = tmp_path / "history.jsonl"
    jct("history", "--export", file)
    code, out, _ = jct("simulate", file, "--nodes", "2x2", "--policy", "fifo,goodput", "--round", "1")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    code, _, err = jct("simulate", file, "--policy", "priority")
    assert code == 2
    assert "probe" in err
    assert "No such file" in jct("simulate", tmp_path / "none")[2].replace("\n", " ")
