"""`jct train` runs a job without a daemon, changes its shape by script; `jct checkpoints` explains what it saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gang import JOBS

JCT = [str(Path(sys.executable).parent / "jct")]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    arguments = {"blocks": 6, "steps": 12}
    path.write_text(yaml.dump({"name": "tiny", "entrypoint": "tiny:job", "workdir": str(JOBS), "arguments": arguments}))
    return path


def train(job_file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*JCT, "train", str(job_file), *options], capture_output=True, text=True)


def losses(path: Path) -> dict[int, str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["step"]: line["loss_hex"] for line in lines if "loss" in line}


def test_scripted_changes_come_at_their_steps_and_change_no_bit(job_file: Path, tmp_path: Path) -> None:
    plain, changed = tmp_path / "plain.jsonl", tmp_path / "changed.jsonl"
    alone = train(job_file, "--microbatches", "8", "--metrics", str(plain))
    assert alone.returncode == 0, alone.stderr
    script = [
        "--stages",
        "2",
        "--change",
        "5:stages=4,schedule=zb-h1",
        "--migrate",
        "8:2->1",
        "--change",
        "10:stages=2",
    ]
    directory = tmp_path / "kept"
    run = train(job_file, *script, "--metrics", str(changed), "--checkpoint", str(directory))
    assert run.returncode == 0, run.stderr
    assert losses(changed) == losses(plain)
    assert "step 5: loss " in run.stdout
    plans = [json.loads(line)["plan"] for line in changed.read_text().splitlines() if '"loss"' in line]
    assert [plans[step - 1] for step in (4, 5, 8, 10)] == ["2×8 1f1b", "4×8 zb-h1", "4×8 zb-h1", "2×8 zb-h1"]
    shown = subprocess.run([*JCT, "checkpoints", "show", str(directory), "--json"], capture_output=True, text=True)
    (checkpoint,) = json.loads(shown.stdout)["checkpoints"]
    assert (checkpoint["step"], len(checkpoint["stages"]), len(checkpoint["layers"])) == (12, 2, 8)


def test_verify_finds_damage(job_file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    assert train(job_file, "--steps", "2", "--checkpoint", str(directory)).returncode == 0
    verify = [*JCT, "checkpoints", "verify", str(directory)]
    assert subprocess.run(verify, capture_output=True).returncode == 0
    victim = min((directory / "layers").iterdir())
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    damaged = subprocess.run(verify, capture_output=True, text=True)
    assert damaged.returncode == 1
    assert "DAMAGED" in damaged.stdout
    empty = subprocess.run([*JCT, "checkpoints", "verify", str(tmp_path / "none")], capture_output=True, text=True)
    assert empty.returncode == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stages", "99"], "99 stages for 8 layers"),
        (["--schedule", "zbv", "--stages", "3"], "holds 2 stages a rank"),
        (["--schedule", "nonsense"], "no schedule 'nonsense'"),
        (["--change", "5:stage=2"], "write stages=N"),
        (["--change", "5:stages=2", "--change", "5:stages=3"], "two changes before one step"),
        (["--stages", "2", "--migrate", "3:2->0"], "neighbouring"),
    ],
)
def test_a_request_that_cannot_be_is_refused(job_file: Path, options: list[str], words: str) -> None:
    refused = train(job_file, *options)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
