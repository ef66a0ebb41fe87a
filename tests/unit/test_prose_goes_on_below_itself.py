"""Prose fits a terminal and loses no word: in `audit`, `doctor`, `events` and `show` it goes on below itself."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from scheduler.cli.doctor import COLUMNS
from scheduler.cli.show import ATTEMPTS
from scheduler.cli.story import told
from scheduler.cli.table import job_table
from scheduler.cli.tokens import AUDIT_COLUMNS

GOLDEN = Path(__file__).parent / "golden"


def entry(actor: str, action: str, target: str, old: object = None, new: object = None, allowed: bool = True) -> dict:
    return {
        "time": "2027-01-15T08:00:00.000000Z", "actor": actor, "action": action, "target": target, "old": old,
        "new": new, "allowed": allowed,
    }  # fmt: skip


ENTRIES = [
    entry("admin", "set team", "team nlp", {"max_devices": None, "weight": 1.0}, {"max_devices": 16, "weight": 2.0}),
    entry("eva", "cancel", "job 12", allowed=False),
    entry("admin", "create reservation", "reservation upgrade-of-the-driver", new={
        "nodes": ["gpu-node-1", "gpu-node-2"], "from_us": 1_800_000_000_000_000, "until_us": 1_800_014_400_000_000,
        "reason": "the driver is upgraded, and the nodes are rebooted one after the other",
    }),
    entry("someone-with-a-long-name@example.org", "drain", "device GPU-5d4ce5a8-1f3c-4f3a-9b80-0c1d5a3e7b11"),
    entry("漢字漢字", "change", "job 7", {"name": "x"}, {"name": "漢字" * 30}),
]  # fmt: skip
FINDINGS = [
    {"check": "nvml", "result": "warning", "text": "NVML Shared Library Not Found: this machine offers CPU or fake "
     "devices only"},
    {"check": "shared memory", "result": "ok", "text": "7.8 GiB free in /dev/shm"},
    {"check": "keys", "result": "FAILED", "text": "secrets.key has mode 0644; others can read it: chmod 600 "
     "/var/lib/jctd/a-rather-long-folder/that-nobody-shortened/daemon/secrets.key"},
]  # fmt: skip
TRIES = [
    {"attempt": 1, "kind": "probe", "state": "ENDED", "cause": "probe_done", "stages": None, "resumed_step": None,
     "last_step": None, "starting": "2027-01-15T08:00:00Z", "nodes": ["gpu-node-1"],
     "message": "the probe has measured all layers"},
    {"attempt": 2, "kind": "train", "state": "RUNNING", "cause": None, "stages": 16, "resumed_step": 0,
     "last_step": 120, "starting": "2027-01-15T08:01:00Z", "nodes": ["gpu-node-1", "gpu-node-2"],
     "message": "saving step 120 failed: No space left on device; the checkpoint of step 80 stays"},
]  # fmt: skip
EVENT = {
    "time": "2027-01-15T08:00:00.000000Z", "kind": "AttemptEnded", "job": 12, "node": "gpu-node-1", "actor": "agent",
    "message": "member 3 ended by signal 9 while it was saving step 1200; the others were freed, to go on from 1100",
}  # fmt: skip


def drawn(rows: list[dict], columns, width: int | None) -> list[str]:
    return [" ".join(text for text, _ in line).rstrip() for line in job_table(rows, "", width, columns).lines()]


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [("audit", ENTRIES, AUDIT_COLUMNS), ("doctor", FINDINGS, COLUMNS), ("attempts", TRIES, ATTEMPTS)],
)
def test_it_looks_as_it_did(name, rows, columns):
    lines = drawn(rows, columns, 80)
    assert max(map(cell_len, lines)) <= 80
    assert "\n".join(lines) + "\n" == (GOLDEN / f"{name}-80.txt").read_text()


@pytest.mark.parametrize(("rows", "columns"), [(ENTRIES, AUDIT_COLUMNS), (FINDINGS, COLUMNS), (TRIES, ATTEMPTS)])
@pytest.mark.parametrize("width", [60, 79, 100, 200])
def test_no_letter_of_the_prose_is_lost_at_any_width(rows, columns, width):
    lines = drawn(rows, columns, width)
    assert max(map(cell_len, lines)) <= width
    start = lines[0].index(columns[-1].title)
    said = "".join(columns[-1].cell(row, "") for row in rows).replace(" ", "")
    cells = [list(job_table([row], "", width, columns).lines())[1:] for row in rows]
    shown = "".join(line[-1][0] for row in cells for line in row).replace(" ", "")
    assert start > 0
    assert shown == said


def test_where_nothing_is_cut_every_entry_is_one_line():
    assert len(drawn(ENTRIES, AUDIT_COLUMNS, None)) == 1 + len(ENTRIES)


@pytest.mark.parametrize("of_one_job", [False, True])
def test_events_go_on_beside_their_time(of_one_job):
    lines = told(EVENT, 80, of_one_job=of_one_job)
    assert max(map(cell_len, lines)) <= 80
    assert all(line.startswith(" " * 25) for line in lines[1:])
    assert told(EVENT, None, of_one_job=of_one_job) == [lines[0] + " " + " ".join(line.strip() for line in lines[1:])]
