"""The README's two terminals, typed as they stand there."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


def blocks() -> list[str]:
    """The README's shell blocks, in order."""
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_two_terminals(tmp_path: Path) -> None:
    first, second = blocks()
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("checkpoints"))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    (up,) = first.strip().splitlines()
    log = tmp_path / "up.log"
    with log.open("wb") as output, subprocess.Popen(
        [*shlex.split(up), "--port", "0", "--agents-port", "0"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=output,
    ) as daemon:
        assert daemon.stdout is not None
        try:
            said = [daemon.stdout.readline().decode() for _ in range(4)]
            assert said[0].startswith("jctd listens at http://127.0.0.1:"), [*said, log.read_text()]
            assert said[2].startswith("jct_")
            for command in second.strip().splitlines():
                done = subprocess.run(
                    shlex.split(command), env=environment, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S,
                    check=False,
                )
                assert done.returncode == 0, (command, done.stdout, done.stderr)
                assert done.stdout or done.stderr, command
        finally:
            daemon.send_signal(signal.SIGINT)
            assert daemon.wait(PATIENCE_S) == 0
    token = tmp_path / "config" / "jctd" / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "state" / "jctd" / "daemon" / "admin-token").exists()
