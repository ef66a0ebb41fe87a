"""A cancelled job is gone, with all its descendants, before its devices are free; cancelling twice is harmless."""

import os

import pytest
from cluster import Cluster


def _gone(cluster: Cluster, job: int, devices: int) -> None:
    ended = cluster.until_state(job, "CANCELLED")
    assert ended["ended_by"] == "admin"
    cluster.eventually(lambda: cluster.free_devices() == devices, "the devices are free")
    assert cluster.members(job) == {}
    assert cluster.client.act(job, "cancel")["state"] == "CANCELLED"


def test_b40_cancel_while_queued(cluster: Cluster) -> None:
    cluster.begin(one="fake:1")
    blocker = cluster.submit(gpus=1, work={"total": "1000000 steps"})
    cluster.until_step(blocker, 1)
    job = cluster.submit(gpus=1)
    assert cluster.client.act(job, "cancel")["state"] == "CANCELLED"
    assert cluster.job(job)["attempts"] == []


def test_b40_cancel_while_held(cluster: Cluster) -> None:
    cluster.begin(one="fake:1")
    job = cluster.submit(gpus=1)
    cluster.client.act(job, "hold")
    cluster.until_state(job, "HELD")
    cluster.client.act(job, "cancel")
    _gone(cluster, job, 1)


def test_b40_cancel_while_its_process_starts(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(gpus=2, arguments={"steps": 1_000_000})
    cluster.until_state(job, "STARTING")
    cluster.client.act(job, "cancel")
    _gone(cluster, job, 2)


def test_b40_cancel_while_running(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(gpus=2, arguments={"steps": 1_000_000})
    cluster.until_step(job, 2)
    cluster.client.act(job, "cancel")
    _gone(cluster, job, 2)


def test_b40_cancel_while_preempted_and_the_preemptor_that_waits_for_it(cluster: Cluster) -> None:
    cluster.begin(one="cpu:1")
    low = cluster.submit(gpus=1, priority=10, arguments={"steps": 1_000_000, "pace_s": 0.2}, checkpoint=True)
    cluster.until_step(low, 1)
    high = cluster.submit(gpus=1, priority=90, arguments={"steps": 1_000_000})
    cluster.until_state(low, "PREEMPTING")
    cluster.client.act(high, "cancel")
    cluster.client.act(low, "cancel")
    _gone(cluster, high, 1)
    _gone(cluster, low, 1)


@pytest.mark.parametrize("devices", ["cpu:1", "fake:1"])
def test_b40_completed_stays_completed(cluster: Cluster, devices: str) -> None:
    cluster.begin(one=devices)
    job = cluster.submit(gpus=1, arguments={"steps": 3}, work={"total": "3 steps"})
    cluster.until_state(job, "COMPLETED")
    assert cluster.client.act(job, "cancel")["state"] == "COMPLETED"


def test_b18_a_job_that_hides_children_from_its_process_group(cluster: Cluster) -> None:
    """They fork twice, take new sessions, clear their environment and ignore SIGTERM (FAULTS B18)."""
    cluster.begin(one="cpu:1")
    job = cluster.submit("awkward:leaves_strays", gpus=1, grace="2s")
    cluster.until(job, lambda seen: bool(_strays(cluster, job)), "its strays")
    strays = _strays(cluster, job)
    cluster.client.act(job, "cancel")
    ended = cluster.until(job, lambda seen: seen["result"] is not None, "its end")
    assert ended["result"] in ("CANCELLED", "COMPLETED")
    cluster.eventually(lambda: cluster.free_devices() == 1, "the device is free")
    assert [pid for pid in strays if os.path.exists(f"/proc/{pid}")] == []


def _strays(cluster: Cluster, job: int) -> list[int]:
    """The pids that hidden children have written down."""
    files = cluster.state.glob(f"agents/*/attempts/{job}.*/strays")
    return [int(line) for file in files for line in file.read_text().split()]
