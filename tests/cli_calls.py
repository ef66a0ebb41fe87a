"""Calls of `jct` in tests."""

import sys
from pathlib import Path

JCT = [sys.executable, "-c", "from scheduler.cli.main import main; main()"]


def submitted(jct, path: Path, *flags: str) -> int:
    code, out, err = jct("submit", path, "-q", *flags)
    assert (code, err) == (0, "")
    return int(out)
