"""Under daemon and agents: a resize takes no new attempt, changes no bit, and gives devices back."""

import json
from pathlib import Path

import pytest
import wishes
from cluster import Cluster

STEPS = 20_000
"""More than any machine takes while a test looks on: jobs are cancelled once they have shown what they should."""


def kinds(cluster: Cluster, job: int) -> list[str]:
    return [event["kind"] for event in cluster.events(job)]


def losses(cluster: Cluster, job: int) -> dict[int, str]:
    return {line["step"]: line["loss_hex"] for line in cluster.metrics(job) if "loss" in line}


def wish(cluster: Cluster, file: Path, job: int, devices: int) -> None:
    """And change something, so that a pass looks at it now."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({job: devices}))
    new.replace(file)
    cluster.client.call("PATCH", f"jobs/{job}", body={"priority": 50 + devices})


def submit(cluster: Cluster, entrypoint: str = "paced:job", steps: int = STEPS, pace_s: float = 0.02) -> int:
    return cluster.submit(
        entrypoint, gpus={"min": 1, "max": 4}, checkpoint=True, min_runtime="0s",
        arguments={"steps": steps, "pace_s": pace_s},
    )


def shape(job: dict) -> tuple[int, int]:
    return len(job["attempts"][-1]["devices"]), job["plan"]["stages"] if job["plan"] else 0


def test_one_attempt_on_one_three_two_and_four_devices(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wishes.install(tmp_path / "policy", monkeypatch)
    cluster.begin(one="cpu:2", two="cpu:2")
    job = submit(cluster)
    wish(cluster, file, job, 1)
    cluster.until_step(job, 3)
    for count in (3, 2, 4):
        wish(cluster, file, job, count)
        told = cluster.until(job, lambda seen, n=count: shape(seen) == (n, n), f"{count} stages")
        assert told["attempt"] == 2, "the probe is the first attempt, and one trains to the end"
        cluster.until_step(job, told["step"] + 2)
        cluster.eventually(lambda n=count: cluster.free_devices() == 4 - n, "who left gave its device back")
    assert kinds(cluster, job).count("Resized") == 3
    assert "ResizeDropped" not in kinds(cluster, job)
    cluster.client.act(job, "cancel")
    cluster.until_state(job, "CANCELLED")
    found = losses(cluster, job)
    assert sorted(found) == list(range(1, len(found) + 1))
    undisturbed = submit(cluster, steps=len(found), pace_s=0.0)
    wish(cluster, file, undisturbed, 1)
    cluster.until_state(undisturbed, "COMPLETED")
    assert found == losses(cluster, undisturbed)


def test_whoever_owns_a_job_changes_its_size_while_it_trains(cluster: Cluster) -> None:
    """Under the policy that a cluster has by itself, and though nobody else could take anything from the job."""
    cluster.begin(one="cpu:2", two="cpu:2")
    job = cluster.submit(
        "paced:job", gpus=4, preemptible=False, min_runtime="10h", arguments={"steps": STEPS, "pace_s": 0.02}
    )
    cluster.until_step(job, 3)
    cluster.client.call("PATCH", f"jobs/{job}", body={"gpus": {"min": 1, "max": 3}})  # and at once another wish
    for gpus, count in ((2, 2), (3, 3), ({"min": 1, "max": 2}, 2), ({"min": 1, "max": 4}, None)):
        cluster.client.call("PATCH", f"jobs/{job}", body={"gpus": gpus})
        told = cluster.until(job, lambda seen, n=count: n in (None, shape(seen)[0]), f"{gpus} GPUs")
        assert told["attempt"] == 2, "the probe is the first attempt, and one trains to the end"
        cluster.until_step(job, told["step"] + 2)
        if count is not None:
            cluster.eventually(lambda n=count: cluster.free_devices() == 4 - n, "who left gave its device back")
    cluster.client.act(job, "cancel")
    cluster.until_state(job, "CANCELLED")
    assert "ResizeDropped" not in kinds(cluster, job)
    found = losses(cluster, job)
    assert sorted(found) == list(range(1, len(found) + 1))


def test_a_newcomer_that_dies_leaves_the_job_as_it_was_and_the_next_change_goes_through_a_checkpoint(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wishes.install(tmp_path / "policy", monkeypatch)
    cluster.begin(one="cpu:4")
    job = submit(cluster, "awkward:first_newcomer_dies")
    wish(cluster, file, job, 2)
    cluster.until_step(job, 3)
    wish(cluster, file, job, 3)
    told = cluster.until(job, lambda seen: seen["attempt"] == 3 and shape(seen) == (3, 3), "a new attempt")
    cluster.until_step(job, told["step"] + 3)
    cluster.client.act(job, "cancel")
    cluster.until_state(job, "CANCELLED")
    told = kinds(cluster, job)
    assert told.index("ResizeDropped") < told.index("Resumed")
    found = losses(cluster, job)
    assert sorted(found) == list(range(1, len(found) + 1))
    cluster.eventually(lambda: cluster.free_devices() == 4, "all devices are free")
