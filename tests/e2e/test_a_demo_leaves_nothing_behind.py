"""`jct demo` that is ended in the middle: its jobs, whose folder goes, do not train on for nobody."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import environment_of, pids

PATIENCE_S = 240


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_its_jobs_along(tmp_path: Path, number: signal.Signals) -> None:
    command = [str(Path(sys.executable).parent / "jct"), "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = next((line for line in demo.stdout if "train runs" in line), "")
        assert said, "no job came to train"
        demo.send_signal(number)
        demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130
    assert list(tmp_path.glob("jctd-demo-*")) == []
    assert [pid for pid in pids() if environment_of(pid).get("JCT_ATTEMPT_DIR", "").startswith(str(tmp_path))] == []
