"""The daemon's policy, `jct`, on a real cluster: probes, joint sizes, and every job ends."""

from cluster import Cluster


def test_jobs_share_and_end(cluster: Cluster) -> None:
    cluster.begin(one="fake:4")
    alone = cluster.submit(gpus={"min": 1, "max": 4}, work={"total": "30 steps"})
    cluster.until_step(alone, 1)
    assert len(cluster.job(alone)["attempts"][-1]["members"]) > 1, "a job alone is not kept small"
    others = [cluster.submit(gpus={"min": 1, "max": 2}, work={"total": "10 steps"}) for _ in range(3)]
    for job in [alone, *others]:
        cluster.until_state(job, "COMPLETED")
    cluster.eventually(lambda: cluster.free_devices() == 4, "all devices are free")
