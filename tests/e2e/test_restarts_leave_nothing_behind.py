"""A daemon that is restarted again and again: no descriptor, process, port or byte more than after the first time."""

from typing import Any

import psutil
import pytest
from cluster import PATIENCE_S, Cluster, fixed_ports

RESTARTS = 20
SLACK_BYTES = 400_000
"""What twenty starts may add to the database: their own lines in the story, and pages that SQLite has claimed ahead."""


@pytest.mark.timeout(1_200)
def test_b63_twenty_restarts_leak_nothing_and_disturb_no_job(tmp_path):
    cluster = Cluster(tmp_path / "state", *fixed_ports()).begin(a="fake:2", b="fake:2")
    running = cluster.submit(work={"total": "100000000 steps"}, gpus=4, preemptible=False)
    attempt = cluster.until_state(running, "RUNNING")["attempt"]
    queued = cluster.submit(work={"total": "1 steps"}, gpus=4)
    try:
        first = {}
        for number in range(1, RESTARTS + 1):
            restart(cluster, hard=number % 4 == 0)
            if number in (1, RESTARTS):
                cluster.eventually(lambda: len(cluster.nodes_up()) == 2, "both agents are back")
                first = first or in_use(cluster)
        last = in_use(cluster)
        assert last["files"] == first["files"]
        assert last["children"] == first["children"]
        assert last["agents' descriptors"] <= first["agents' descriptors"] + 4
        assert last["database"] <= first["database"] + SLACK_BYTES
        job = cluster.job(running)
        assert (job["state"], job["attempt"]) == ("RUNNING", attempt)
        assert cluster.job(queued)["result"] is None
        assert cluster.facts["epoch"] == RESTARTS + 1
    finally:
        cluster.cancel_all()
        cluster.stop()
    assert cluster.strays() == []


def restart(cluster: Cluster, hard: bool) -> None:
    """On the same ports."""
    assert cluster.daemon is not None
    if hard:
        cluster.kill_daemon()
    else:
        cluster.daemon.terminate()
        assert cluster.daemon.wait(PATIENCE_S) == 0
    port = cluster.port
    cluster.restart_daemon()
    assert cluster.port == port


def in_use(cluster: Cluster) -> dict[str, Any]:
    assert cluster.daemon is not None
    daemon, *agents = (psutil.Process(one.pid) for one in (cluster.daemon, *cluster.agents.values()))
    cluster.eventually(lambda: len(daemon.children(recursive=True)) == 1, "the one child is for passes")
    return {
        "files": [len(process.open_files()) for process in (daemon, *agents)],
        "children": [len(process.children(recursive=True)) for process in (daemon, *agents)],
        "agents' descriptors": sum(agent.num_fds() for agent in agents),
        "database": sum(file.stat().st_size for file in cluster.daemon_folder.glob("jctd.db*")),
    }
