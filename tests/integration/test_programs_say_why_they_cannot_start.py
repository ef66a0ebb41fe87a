"""One line that says what and why, an exit code, and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

CLI = ["-c", "from scheduler.cli.main import main; main()"]
DAEMON = ["-m", "scheduler.daemon", "--state", "{folder}"]
AGENT = ["-m", "agent.main", "--devices", "fake:1", "--node", "n"]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ([*AGENT, "--connect", "tcp://127.0.0.1:1", "--state", "{file}/agent"], 1, "Not a directory"),
        ([*AGENT, "--connect", "nonsense", "--state", "{folder}"], 1, "nonsense"),
        ([*AGENT, "--connect", "tcp://127.0.0.1:1", "--state", "{folder}", "--server-key", "/nope"], 1, "/nope"),
        ([*AGENT, "--connect", "tcp://127.0.0.1:1", "--state", "{folder}", "--health-check", "/nope"], 2, "no program"),
        ([*DAEMON, "--retention", "5x"], 1, "retention: '5x' is no duration"),
        ([*DAEMON, "--auto-drain-share", "2"], 1, "auto_drain_share: "),
        ([*CLI, "up", "--state", "{file}/state"], 6, "Not a directory"),
    ],
)
def test_one_line_and_a_code(tmp_path: Path, command: list[str], code: int, words: str) -> None:
    (tmp_path / "file").touch()
    names = {"file": tmp_path / "file", "folder": tmp_path / "agent"}
    arguments = [argument.format(**names) for argument in command]
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
