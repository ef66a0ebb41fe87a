"""`jct train` that is killed, or whose output nobody reads any more, leaves no training behind that nobody sees."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from gang import JOBS

from worker import processes

EXAMPLES = Path(__file__).parents[2] / "examples"
JCT = Path(sys.executable).with_name("jct")
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


def named(tag: str, name: str) -> list[int]:
    """Those of them with this name, as ps shows it."""
    found = []
    for pid in left(tag):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith(name):
                found.append(int(pid))
    return found


def nothing_left(tag: str) -> bool:
    until = time.monotonic() + 30
    while left(tag) and time.monotonic() < until:
        time.sleep(0.2)
    return left(tag) == []


def folders(where: Path) -> list[Path]:
    """What a training works in, which goes with it."""
    return list(where.glob("jct-train-*"))


@pytest.mark.parametrize("how", ["killed", "worker killed", "unread", "terminal closed"])
def test_nothing_goes_on_unseen(tmp_path: Path, how: str) -> None:
    job = yaml.safe_load((EXAMPLES / "mlp.yaml").read_text())
    job["arguments"]["steps"] = 10**8
    job |= {"workdir": str(EXAMPLES), "checkpoint": {"dir": str(tmp_path / "kept"), "every": "1h"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    tag = f"{tmp_path}-{how}"
    command = [str(JCT), "train", str(tmp_path / "job.yaml"), "--microbatches", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, TAG: tag, "TMPDIR": str(tmp_path)},
    ) as training:  # fmt: skip
        assert training.stdout is not None
        assert training.stderr is not None
        assert any(line.startswith("step 3") for line in training.stdout)
        assert left(tag)
        assert folders(tmp_path)
        if how == "terminal closed":
            os.killpg(training.pid, signal.SIGHUP)
        if how == "killed":
            training.send_signal(signal.SIGKILL)
        if how == "worker killed":
            (worker,) = [p for p in processes.descendants(training.pid) if p.parent == training.pid]
            processes.kill(worker)
        training.stdout.close()
        training.wait(timeout=60)
        if how == "unread":
            assert (training.returncode, training.stderr.read()) == (141, "")
    assert nothing_left(tag)
    assert list((tmp_path / "kept").glob("step-*")), "what it had done is saved"
    if how != "worker killed":  # then nobody is left to do it
        assert folders(tmp_path) == []


def test_killed_before_its_worker_has_imported_anything_it_trains_nothing(tmp_path: Path) -> None:
    job = {"name": "slow", "entrypoint": "sleeping:job", "workdir": str(JOBS), "arguments": {"block_s": 60.0}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    tag = f"{tmp_path}-early"
    with subprocess.Popen([str(JCT), "train", str(tmp_path / "job.yaml")], env={**os.environ, TAG: tag}) as training:
        while not [one for one in processes.descendants(training.pid) if one.parent == training.pid]:
            assert training.poll() is None
            time.sleep(0.01)
        training.send_signal(signal.SIGKILL)
    assert nothing_left(tag)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_the_model_is_probed_it_ends_at_once(tmp_path: Path, number: int) -> None:
    job = {"name": "slow", "entrypoint": "sleeping:job", "workdir": str(JOBS), "arguments": {"block_s": 60.0}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    tag = f"{tmp_path}-probe"
    with subprocess.Popen(
        [str(JCT), "train", str(tmp_path / "job.yaml")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, TAG: tag, "TMPDIR": str(tmp_path)}, text=True, start_new_session=True,
    ) as training:  # fmt: skip
        while not named(tag, "jct 0.1/0") and training.poll() is None:
            time.sleep(0.05)
        assert folders(tmp_path)
        os.killpg(training.pid, number)  # as a terminal does at Ctrl-C, and when it is closed
        said, errors = training.communicate(timeout=60)
    assert training.returncode == 128 + number
    assert (said, errors) == ("", "")
    assert nothing_left(tag)
    assert folders(tmp_path) == []
