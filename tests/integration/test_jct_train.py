"""`jct train` runs a job without a daemon, changes its shape by script; `jct checkpoints` explains what it saved."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gang import JOBS

ROOT = Path(__file__).parents[2]
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
    assert checkpoint["job"] is None
    shown = subprocess.run([*JCT, "checkpoints", "show", str(directory)], capture_output=True, text=True)
    assert "by jct train, without a daemon;" in shown.stdout


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    lines = (ROOT / "docs" / "training.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("jct train examples/")]
    command = [*JCT, *shlex.split(line)[1:], "--steps", "10"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    plans = [json.loads(one)["plan"] for one in (tmp_path / "run.jsonl").read_text().splitlines() if '"loss"' in one]
    assert [plans[step - 1] for step in (4, 5, 8)] == ["2×8 1f1b", "4×8 zb-h1", "4×8 zb-h1"]


def test_metrics_go_through_a_pipe_to_whoever_reads_it(job_file: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        run = train(job_file, "--steps", "3", "--metrics", str(pipe))
        if run.returncode:
            reader.kill()
        assert run.returncode == 0, run.stderr
        assert reader.stdout is not None
        assert [json.loads(line)["step"] for line in reader.stdout if '"loss"' in line] == [1, 2, 3]


def test_metrics_that_cannot_be_written_any_more_are_told_once_and_training_goes_on(job_file: Path) -> None:
    run = train(job_file, "--steps", "3", "--metrics", "/dev/full")
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("--metrics /dev/full: No space left on device\n  training goes on without it\n") == 1
    assert "Traceback" not in run.stderr
    assert "step 3: loss " in run.stdout


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
        (["--change", "5:stages=2", "--change", "5:stages=3"], "two changes before step 5: write them as one"),
        (["--stages", "2", "--migrate", "3:2->0"], "neighbouring"),
        (["--change", "13:stages=2"], "a change before step 13: the job has 12 steps"),
        (["--profile", "profile.json"], "--profile needs 100 steps after the first 50"),
        (["--dtype", "int8"], "jct train: error: argument --dtype"),
        (["--change", "5:offload=yes"], "offload=on|off"),
        (["--schedule", "2bw", "--recompute"], "2bw cannot recompute"),
        (["--metrics", "/dev/null/run.jsonl"], "--metrics /dev/null/run.jsonl: Not a directory; name a file that can"),
        (["--metrics", "no/such/folder/run.jsonl"], "No such file or directory; name a file that can be written"),
        (["--profile", "/", "--steps", "200"], "--profile /: Is a directory; name a file that can be written"),
        (["--checkpoint", "/dev/null/kept"], "--checkpoint /dev/null/kept: Not a directory; name a directory or URL"),
    ],
)
def test_a_request_that_cannot_be_is_refused(job_file: Path, options: list[str], words: str) -> None:
    refused = train(job_file, *options)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "loss" not in refused.stdout


def test_cuda_where_there_is_none_is_refused(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refused = train(job_file, "--device", "cuda")
    assert refused.returncode == 2
    assert "torch finds no CUDA device here" in refused.stderr


def test_going_on_from_a_checkpoint_is_told(job_file: Path, tmp_path: Path) -> None:
    kept = ["--checkpoint", str(tmp_path / "kept")]
    assert "goes on" not in train(job_file, "--steps", "2", *kept).stdout
    assert f"goes on after step 2, from {tmp_path / 'kept'}\n" in train(job_file, "--steps", "3", *kept).stdout


def test_a_checkpoint_with_all_steps_is_told_to_leave_nothing_to_train(job_file: Path, tmp_path: Path) -> None:
    kept = ["--checkpoint", str(tmp_path / "kept")]
    assert train(job_file, "--steps", "2", *kept).returncode == 0
    for _ in range(2):
        again = train(job_file, "--steps", "2", *kept)
        assert again.returncode == 0
        assert f"nothing to train: of 2 steps {tmp_path / 'kept'} has 2\n  --steps 4 trains on" in again.stdout
        assert "gradient norm" not in again.stdout
    assert "goes on after step 2" in train(job_file, "--steps", "4", *kept).stdout


def test_the_optimizer_goes_to_host_memory_and_comes_back(job_file: Path, tmp_path: Path) -> None:
    plain, offloaded = tmp_path / "plain.jsonl", tmp_path / "offloaded.jsonl"
    changes = ["--change", "4:offload=off", "--change", "6:offload=on"]
    options = ["--stages", "2", "--microbatches", "8", "--offload", *changes]
    run = train(job_file, "--steps", "6", *options, "--metrics", str(offloaded))
    assert run.returncode == 0, run.stderr
    alone = train(job_file, "--steps", "6", "--microbatches", "8", "--metrics", str(plain))
    assert alone.returncode == 0
    assert losses(offloaded) == losses(plain)


def test_activations_are_kept_recomputed_and_kept_again(job_file: Path, tmp_path: Path) -> None:
    plain, saved = tmp_path / "plain.jsonl", tmp_path / "saved.jsonl"
    changes = ["--change", "4:recompute=on", "--change", "6:recompute=off,offload=on", "--change", "8:stages=1"]
    run = train(job_file, "--steps", "9", "--stages", "2", "--microbatches", "8", *changes, "--metrics", str(saved))
    assert run.returncode == 0, run.stderr
    plans = [json.loads(line)["plan"] for line in saved.read_text().splitlines() if '"loss"' in line]
    knobs = ["", "with recompute", "with offload", "with offload"]
    assert [plans[step - 1].partition(" 1f1b")[2].strip() for step in (3, 4, 6, 8)] == knobs
    alone = train(job_file, "--steps", "9", "--microbatches", "8", "--recompute", "--metrics", str(plain))
    assert alone.returncode == 0
    assert losses(saved) == losses(plain)


def test_help_names_what_can_be_asked_of_checkpoints() -> None:
    said = subprocess.run([*JCT, "checkpoints", "--help"], capture_output=True, text=True, check=True).stdout
    assert "what" not in said
    assert "show|verify|half" in said


def test_a_job_told_to_adapt_moves_layers_away_from_a_slow_device(tmp_path: Path) -> None:
    weather, path = tmp_path / "weather.json", tmp_path / "job.yaml"
    arguments = {"blocks": 6, "steps": 100_000, "global_batch": 16, "block_s": 0.003, "weather": str(weather)}
    path.write_text(yaml.dump({"name": "t", "entrypoint": "devices:job", "workdir": str(JOBS), "arguments": arguments}))
    settings = "threshold=0.6,held_s=0.5,cooldown_s=1"
    options = ["--stages", "2", "--microbatches", "8", "--adapt", "--adapt-with", settings]
    with subprocess.Popen([*JCT, "train", str(path), *options], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("step 20:"):
                weather.write_text(json.dumps({"slow": {"0": 4.0}}))
            if "revision 1: layers 4+4 -> " in line:
                break
        else:
            raise AssertionError("it ended without a revision")
        run.send_signal(signal.SIGINT)
        run.stdout.read()
    assert "since rank 0 computes" in line
    after = line.partition("-> ")[2].partition(",")[0].split("+")
    assert int(after[0]) < 4 < int(after[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_leaves_nothing_running(job_file: Path, tmp_path: Path, number: int) -> None:
    kept = tmp_path / "kept"
    options = ["--steps", "1000000", "--checkpoint", str(kept)]
    with subprocess.Popen([*JCT, "train", str(job_file), *options], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        next(line for line in run.stdout if line.startswith("step 5:"))
        run.send_signal(number)
        *_, last = run.stdout
    assert run.returncode == 128 + number
    said = re.fullmatch(rf"jct train: interrupted after step (\d+); the checkpoint of step (\d+) is in {kept}\n", last)
    assert said is not None
    assert said[1] == said[2]
    assert list(kept.glob("step-*/manifest.json")), "it was saved before jct ended"


def test_settings_of_adapting_that_cannot_be_are_told(job_file: Path) -> None:
    run = train(job_file, "--adapt-with", "held=5")
    assert run.returncode == 2
    assert "'held=5': write NAME=NUMBER" in run.stderr
    assert "held_s" in run.stderr
    run = train(job_file, "--adapt-with", "held_s=5,watermark=2")
    assert run.returncode == 2
    assert "watermark is a share between 0.5 and 1" in run.stderr
