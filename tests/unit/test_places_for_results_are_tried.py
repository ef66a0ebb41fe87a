"""Whether a file can be written is tried without a trace."""

from pathlib import Path

import pytest

from worker.places import check_file


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
