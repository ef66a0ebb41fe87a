"""`jct train` that is killed, or whose output nobody reads any more, leaves no training behind that nobody sees."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
TAG = "JCT_TEST_TAG"


def left(tag: str) -> list[str]:
    """Processes that have the tag in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{TAG}={tag}\0".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["killed", "unread"])
def test_nothing_goes_on_unseen(tmp_path: Path, how: str) -> None:
    job = yaml.safe_load((EXAMPLES / "mlp.yaml").read_text())
    job["arguments"]["steps"] = 10**8
    job |= {"workdir": str(EXAMPLES), "checkpoint": {"dir": str(tmp_path / "kept"), "every": "1h"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    tag = f"{tmp_path}-{how}"
    jct = Path(sys.executable).with_name("jct")
    command = [str(jct), "train", str(tmp_path / "job.yaml"), "--microbatches", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, TAG: tag}, text=True
    ) as training:
        assert training.stdout is not None
        assert any(line.startswith("step 3") for line in training.stdout)
        assert left(tag)
        if how == "killed":
            training.send_signal(signal.SIGKILL)
        training.stdout.close()
        training.wait(timeout=60)
    until = time.monotonic() + 30
    while left(tag) and time.monotonic() < until:
        time.sleep(0.2)
    assert left(tag) == []
    assert list((tmp_path / "kept").glob("step-*")), "what it had done is saved"
