"""A program may put anything where its progress file is to be: its shim reads on, and guards it."""

import os

import pytest

from worker.command import TAIL_BYTES, _tail


def test_the_end_of_a_file_is_read(tmp_path):
    (tmp_path / "progress").write_bytes(b"x" * TAIL_BYTES + b"end\n")
    assert _tail(tmp_path / "progress") == b"x" * (TAIL_BYTES - 4) + b"end\n"
    (tmp_path / "progress").write_bytes(b"short\n")
    assert _tail(tmp_path / "progress") == b"short\n"


@pytest.mark.parametrize("place", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: None])
def test_what_is_no_file_says_nothing_and_keeps_nobody_waiting(tmp_path, place):
    place(tmp_path / "progress")
    assert _tail(tmp_path / "progress") == b""
