"""Three trainings on four devices, under `jct` and under `fifo`: an elastic one that is made smaller and larger again,
one that an urgent one preempts. The same script both times; the sums of completion times are compared.

A long test: on a machine that is busy with other things a change may not pay."""

from pathlib import Path

import pytest
from cluster import Cluster

JOB = {
    "entrypoint": "sleeping:job", "arguments": {"blocks": 8, "global_batch": 8, "dropout": 0.0}, "checkpoint": True,
    "parallel": {"micro_batch_size": 1},
}


def play(cluster: Cluster) -> dict[str, dict]:
    """Submit the elastic job, the rigid one when that trains, the urgent one when both do; all to their ends.

    Their model has been measured before."""
    known = submit(cluster, 1000, 1, 50)
    cluster.until_step(known, 1)
    cluster.client.act(known, "cancel")
    cluster.until_state(known, "CANCELLED")
    jobs = {"elastic": submit(cluster, 150, {"min": 1, "max": 4}, 10)}
    cluster.until_step(jobs["elastic"], 3)
    jobs["rigid"] = submit(cluster, 60, 2, 10)
    cluster.until_step(jobs["rigid"], 3)
    jobs["urgent"] = submit(cluster, 20, 2, 90)
    return {name: cluster.until_state(id, "COMPLETED", patience_s=280) for name, id in jobs.items()}


def submit(cluster: Cluster, steps: int, gpus: object, priority: int) -> int:
    return cluster.submit(**JOB, work={"total": f"{steps} steps"}, gpus=gpus, priority=priority)


def widths(cluster: Cluster, job: int) -> list[int]:
    """On how many devices it was placed and resized, in order."""
    told = (event for event in cluster.events(job) if event["kind"] in ("Placed", "Resizing"))
    return [len(event["data"]["devices"]) for event in told]


@pytest.mark.long
@pytest.mark.timeout(700)
def test_three_jobs_end_sooner_in_sum_than_first_come_first_served(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.begin(one="cpu:4")
    with_jct = play(cluster)
    sizes = widths(cluster, with_jct["elastic"]["id"])
    assert sizes[0] == 4, "alone it has all"
    assert min(sizes) < 4, "it made room"
    assert sizes.index(min(sizes)) < len(sizes) - 1, "and grew again"
    assert sizes[-1] > min(sizes)
    assert with_jct["rigid"]["preemptions"] + with_jct["elastic"]["preemptions"] >= 1
    monkeypatch.setenv("JCT_SERVER_POLICY", "fifo")
    other = Cluster(tmp_path / "fifo")
    try:
        other.begin(one="cpu:4")
        with_fifo = play(other)
    finally:
        other.cancel_all()
        other.stop()
    assert total_s(with_jct) < total_s(with_fifo)


def total_s(jobs: dict[str, dict]) -> float:
    return sum(job["ledger"]["total_s"] for job in jobs.values())
