"""What the documents list is what the programs do."""

import re
from pathlib import Path

from scheduler.cli import exits
from scheduler.jobfile.model import HONOURED_SCHEDULES, JobFile

DOCS = Path(__file__).parents[2] / "docs"


def test_every_field_of_the_job_file_is_documented():
    text = (DOCS / "job-file.md").read_text()
    documented = {name.partition(".")[0] for name in re.findall(r"`([a-zA-Z_.]+)`", text)}
    assert {field.alias or name for name, field in JobFile.model_fields.items()} <= documented


def test_every_schedule_that_a_job_may_ask_for_is_documented():
    text = (DOCS / "job-file.md").read_text()
    assert [name for name in HONOURED_SCHEDULES if f"`{name}`" not in text] == []


def test_every_exit_code_is_documented():
    text = (DOCS / "cli.md").read_text()
    for code in range(exits.TIMED_OUT + 1):
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE)
    for code in (exits.STATE_FAILED, exits.STATE_NOT_FINISHED, exits.STATE_NOT_FOUND, *exits._BY_STATE.values()):
        assert str(code) in text


def test_every_test_that_the_documents_name_is_there():
    text = (DOCS / "faults.md").read_text() + (DOCS / "features.md").read_text()
    root = DOCS.parent
    assert [path for path in re.findall(r"`(tests/[a-z0-9_/]+\.py)`", text) if not (root / path).exists()] == []
    there = {name for file in root.glob("tests/*/*.py") for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert [name for name in re.findall(r"`(test_\w+)`", text) if name not in there] == []


def test_every_fault_has_a_test_with_its_number_or_a_line_that_says_what_is_not_tried():
    rows = re.findall(r"^\| B(\d+) [^|]*\| (.*) \|$", (DOCS / "faults.md").read_text(), re.MULTILINE)
    there = "\n".join(str(file.name) + file.read_text() for file in DOCS.parent.glob("tests/*/*.py"))
    named = {number for run in re.findall(r"test_((?:b\d\d_)+)", there) for number in re.findall(r"\d\d", run)}
    assert [number for number, text in rows if number not in named and "not tried" not in text] == []
