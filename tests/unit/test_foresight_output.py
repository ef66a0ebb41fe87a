"""How `eta` and `why` look at 80 columns: golden files."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from scheduler.cli.foresight import eta_facts, why_facts
from scheduler.cli.output import print_facts

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
        ("why", why_facts(WHY)),
    ],
)  # fmt: skip
def test_it_looks_as_it_did(name, facts, capsys):
    print_facts(facts, 80)
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out == (GOLDEN / f"{name}-80.txt").read_text()
