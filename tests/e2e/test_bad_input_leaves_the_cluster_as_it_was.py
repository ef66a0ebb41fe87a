"""Each mistake gives one clear message, ends only its own job, and frees what it held."""

import json
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

from scheduler.cli.client import Refused

MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("no_such_module:job", {}, "no_such_module"),
    ("tiny:no_such_function", {}, "no_such_function"),
    ("awkward:raises", {}, "raises"),
    ("tiny:job", {"workdir": "/no/such/folder"}, "/no/such/folder"),
    ("tiny:job", {"arguments": {"no_such_argument": 1}}, "no_such_argument"),
]


@pytest.fixture
def quiet(cluster: Cluster) -> Cluster:
    return cluster.begin(one="cpu:1")


def test_mistakes_that_show_when_the_job_starts(quiet: Cluster) -> None:
    """One cluster takes all of them, and still trains afterwards."""
    for entrypoint, fields, clue in MISTAKES:
        ended = quiet.until_state(quiet.submit(entrypoint, gpus=1, **fields), "FAILED")
        assert clue in ended["reason"]["text"], ended["reason"]
        assert ended["ended_by"] == "job"
        assert len(ended["attempts"]) == 1
    quiet.eventually(lambda: quiet.free_devices() == 1, "the device is free")
    good = quiet.submit(gpus=1, arguments={"steps": 3})
    assert quiet.until_state(good, "COMPLETED")["exit_code"] == 0


@pytest.mark.parametrize(
    ("fields", "clue"),
    [
        ({"prioritee": 3}, "prioritee"),
        ({"gpus": {"min": 4, "max": 2}}, "min"),
        ({"gpus": 0}, "gpus"),
        ({"command": ["python"]}, "exactly one"),
    ],
)
def test_mistakes_that_a_submission_is_refused_for(quiet: Cluster, fields: dict[str, Any], clue: str) -> None:
    with pytest.raises(Refused, match=clue):
        quiet.submit(**fields)
    assert quiet.client.jobs(None, all="true")[0] == []


def test_a_job_that_no_cluster_of_this_size_can_run_waits_and_says_why(quiet: Cluster) -> None:
    job = quiet.submit(gpus=64)
    waiting = quiet.until(job, lambda seen: (seen["reason"] or {}).get("code") == "TooLarge", "its reason")
    assert "64" in waiting["reason"]["text"]


def test_a_broken_checkpoint_fails_clearly_and_never_starts_from_nothing(quiet: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoint = {"dir": str(folder), "every": "1s", "keep": 2}
    first = quiet.submit(gpus=1, arguments={"steps": 30}, checkpoint=checkpoint)
    quiet.until_state(first, "COMPLETED")
    for file in (folder / "layers").iterdir():
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    again = quiet.submit(gpus=1, arguments={"steps": 40}, checkpoint=checkpoint)
    ended = quiet.until_state(again, "FAILED")
    assert "checkpoint" in ended["reason"]["text"]
    assert ended["attempts"][-1]["resumed_step"] is None
    manifests = [json.loads(file.read_text()) for file in folder.glob("step-*/manifest.json")]
    assert [manifest["step"] for manifest in manifests] == [30] or len(manifests) == 2
