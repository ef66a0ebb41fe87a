"""Whether a file can be written is tried without a trace."""

import os
import select
from pathlib import Path

import pytest

from worker.places import Sink, check_file


def test_nothing_is_left_and_nothing_is_taken_away(tmp_path: Path) -> None:
    new, old, link = tmp_path / "new", tmp_path / "old", tmp_path / "link"
    old.write_text("kept")
    link.symlink_to(tmp_path / "target")
    for path in (new, old, link):
        check_file("--metrics", path)
    assert not new.exists()
    assert old.read_text() == "kept"
    assert link.is_symlink(), "a link to a file that is yet to be made"


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Is a directory; name a file"):
        check_file("--metrics", tmp_path)


def test_the_reader_of_a_pipe_sees_no_end_before_there_was_anything_to_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_file("--metrics", pipe)
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        assert poll.poll(0) == [], "no writer has come and gone"
    finally:
        os.close(reader)


def test_what_cannot_be_written_is_told_once_and_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Sink("--metrics", Path("/dev/full")) as sink:
        sink.write("a\n")
        sink.write("b\n")
    assert capsys.readouterr().err.count("--metrics /dev/full: No space left on device") == 1


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    with Sink("--metrics", tmp_path / "run.jsonl") as sink:
        sink.write("a\n")
        assert (tmp_path / "run.jsonl").read_text() == "a\n"
