"""How `eta`, `why`, `whatif` and `plan --at-cluster` look at 80 columns: golden files."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from scheduler.cli.foresight import eta_facts, ledger_grid, plan_facts, prio_lines, why_facts
from scheduler.cli.output import print_facts
from scheduler.cli.whatif import print_changes

GOLDEN = Path(__file__).parent / "golden"
NOW = "2027-01-15T08:00:00.000000Z"
PARTS = {
    "queueing_s": 480.0, "startup_s": 12.5, "training_s": 6_700.0, "preemptions_s": 0.0, "cleanup_s": 3.5,
    "total_s": 7_196.0,
}  # fmt: skip
RANGE = {
    "earliest": "2027-01-15T09:30:00.000000Z", "likely": "2027-01-15T10:00:00.000000Z",
    "latest": "2027-01-15T11:10:00.000000Z",
}  # fmt: skip
ETA = {
    "now": NOW, "job": 12, "state": "PENDING", "confidence": 0.9, "made": "2027-01-15T07:59:56.000000Z", "futures": 5,
    "start": {
        "earliest": "2027-01-15T08:05:00.000000Z", "likely": "2027-01-15T08:08:00.000000Z",
        "latest": "2027-01-15T08:12:00.000000Z",
    },
    "end": RANGE, "unknown": None, "parts": PARTS, "preemptions": 0.4,
    "so_far": {**dict.fromkeys(PARTS, 0.0), "queueing_s": 100.0, "total_s": 100.0}, "ended": None,
    "estimates": [{"moment": "submit", "made": NOW, "end": RANGE, "parts": PARTS, "preemptions": 0.4, "inside": None}],
    "coverage": {"share": 41 / 45, "inside": 41, "before": 1, "after": 2, "unknown": 1},
}  # fmt: skip
UNKNOWN = {
    **ETA, "start": None, "end": None, "parts": None, "preemptions": None, "estimates": [],
    "unknown": "nothing tells yet how much work it has, or how fast it is",
    "coverage": {"share": None, "inside": 0, "before": 0, "after": 0, "unknown": 0},
}  # fmt: skip
ENDED = {
    **ETA, "state": "COMPLETED", "ended": "2027-01-15T11:20:00.000000Z", "so_far": {**PARTS, "total_s": 7_196.0},
    "estimates": [{**ETA["estimates"][0], "inside": False}],
}  # fmt: skip
WHY = {
    "job": 12, "state": "PENDING", "code": "GangPartial", "since": "2027-01-15T07:20:00.000000Z", "waited_s": 2_400.0,
    "text": "It needs 8 of 16 A100 devices; 3 are free, and a gang starts whole. Job 4 of lower priority may not be "
    "stopped yet.",
    "unblock": "devices that come free together with those that are free; or a smaller minimum (jct update --gpus); "
    "foreseen in 480 s",
    "numbers": {},
}  # fmt: skip

PLANNED = {
    "start": ETA["start"], "end": RANGE, "unknown": None, "nodes": {"gpu-node-1": 8, "gpu-node-2": 8},
    "plan": "4×16×4r", "parts": PARTS, "preemptions": 0.2, "confidence": 0.9, "futures": 5,
}  # fmt: skip
WHATIF = {
    "changes": True, "preempted": [4], "futures": 5,
    "moved": [
        {
            "job": 12, "name": "a-rather-long-name-of-a-job-that-nobody-shortened", "team": "nlp", "preempted": False,
            "runs": False, "unknown": None, "start_before": "2027-01-15T08:08:00.000000Z",
            "start_after": "2027-01-15T08:00:30.000000Z",
            "end_before": "2027-01-15T10:00:00.000000Z", "end_after": "2027-01-15T09:45:00.000000Z",
        },
        {
            "job": 4, "name": "bert", "team": "vision", "preempted": True, "runs": True,
            "unknown": None, "start_before": None,
            "start_after": "2027-01-15T09:50:00.000000Z", "end_before": "2027-01-15T09:00:00.000000Z",
            "end_after": "2027-01-15T11:00:00.000000Z",
        },
        {
            "job": 31, "name": "t5", "team": "vision", "preempted": False, "runs": False, "unknown": None,
            "start_before": "2027-01-15T09:00:00.000000Z", "start_after": None,
            "end_before": "2027-01-15T19:00:00.000000Z", "end_after": None,
        },
        {
            "job": 40, "name": "notebook", "team": "ops", "preempted": False, "runs": False,
            "unknown": UNKNOWN["unknown"], "start_before": "2027-01-15T08:08:00.000000Z",
            "start_after": "2027-01-15T08:05:00.000000Z", "end_before": None, "end_after": None,
        },
    ],
    "teams": [
        {"team": "nlp", "jobs": 1, "left_out": 0, "jct_before_s": 7_200.0, "jct_after_s": 6_300.0},
        {"team": "vision", "jobs": 2, "left_out": 2, "jct_before_s": 3_600.0, "jct_after_s": 9_000.0},
        {"team": "ops", "jobs": 2, "left_out": 1, "jct_before_s": 3_600.0, "jct_after_s": 3_600.0},
    ],
}  # fmt: skip

PRIO = {
    "job": 12, "state": "PENDING", "policy": "jct", "position": 3, "waiting": 14,
    "ranks": [
        {"terms": [{"name": "within its bound", "value": 0.0}], "sum": 0.0},
        {
            "terms": [
                {"name": "priority of the job", "value": 50.0}, {"name": "of team nlp", "value": 5.0},
                {"name": "of queue default", "value": 0.0},
            ],
            "sum": 55.0,
        },
        {
            "terms": [{"name": "log2 of weight", "value": 0.5}, {"name": "-log2 of GPU-seconds left", "value": -14.8}],
            "sum": -14.3,
        },
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("eta", eta_facts(ETA)), ("eta-unknown", eta_facts(UNKNOWN)), ("eta-ended", eta_facts(ENDED)),
        ("why", why_facts(WHY)), ("plan-at-cluster", plan_facts(PLANNED, NOW)),
    ],
)  # fmt: skip
def test_it_looks_as_it_did(name, facts, capsys):
    print_facts(facts, 80)
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out == (GOLDEN / f"{name}-80.txt").read_text()


def test_why_of_a_job_that_has_ended_tells_since_when_and_no_wait():
    ended = {**WHY, "state": "COMPLETED", "code": "COMPLETED", "text": "finished", "unblock": "", "waited_s": None}
    assert dict(why_facts(ended))["Since"] == "2027-01-15 07:20:00 UTC"


def test_what_would_change_looks_as_it_did(capsys):
    print_changes(WHATIF, NOW, 80)
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out == (GOLDEN / "whatif-80.txt").read_text()


@pytest.mark.parametrize(("preempted", "after"), [(False, "runs"), (True, "runs -> never")])
def test_a_job_of_unknown_length_that_runs_is_told_to_run_and_no_mean_is_made_of_it(preempted, after, capsys):
    one = {**WHATIF["moved"][3], "start_before": None, "start_after": None, "runs": True, "preempted": preempted}
    teams = [{"team": "ops", "jobs": 0, "left_out": 1, "jct_before_s": None, "jct_after_s": None}]
    print_changes({**WHATIF, "moved": [one], "teams": teams}, NOW, 80)
    _, row, team, _ = capsys.readouterr().out.splitlines()
    assert f" {after} " in row
    assert "unknown" in row
    assert team == "team ops: 1 job of unknown length left out of the mean"


def test_a_place_in_the_queue_looks_as_it_did():
    lines = prio_lines(PRIO)
    assert max(map(cell_len, lines)) <= 80
    assert "\n".join(lines) + "\n" == (GOLDEN / "prio-80.txt").read_text()


def test_estimate_and_truth_look_as_they_did(capsys):
    earlier = [{**ETA["estimates"][0], "inside": True}, {**ETA["estimates"][0], "moment": "start", "inside": False}]
    truth = {**PARTS, "preemptions_s": 300.0, "total_s": 7_496.0}
    ledger_grid(earlier, truth, over=True).print()
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out == (GOLDEN / "ledger-80.txt").read_text()
