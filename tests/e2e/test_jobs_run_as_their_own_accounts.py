"""A tenant's processes run as the account that the node lends, whoever the agent is."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from cluster import Cluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")

SCRIPT = """#!/bin/sh
echo "I am $(id -un) $(id -G), home $HOME, mask $(umask)"
grep NoNewPrivs /proc/self/status
cat "$JCT_ATTEMPT_DIR/../../agent.key_secret" || echo "the node's key is closed"
ls "$JCT_ATTEMPT_DIR/.." || echo "other attempts are closed"
ln -s /etc/shadow "$JCT_ATTEMPT_DIR/exit-9.json"
sleep ${SECONDS_TO_SLEEP:-0}
"""


@pytest.fixture
def cluster():
    """Below a folder that every account may pass through, unlike those that pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="jctd-accounts-"))
    folder.chmod(0o711)
    (folder / "agents").mkdir(mode=0o711)
    cluster = Cluster(folder)
    cluster.start_daemon()
    accounts = folder / "accounts.toml"
    accounts.write_text('[teams]\ndefault = "nobody"\n')
    accounts.chmod(0o644)
    cluster.start_agent("a", "cpu:2", "--accounts", str(accounts))
    cluster.connect()
    cluster.eventually(lambda: cluster.nodes_up() == ["a"], "the agent registers")
    yield cluster
    cluster.cancel_all()
    assert cluster.strays() == []
    cluster.stop()
    shutil.rmtree(folder)


def submit(cluster: Cluster, **fields) -> int:
    job = {"name": "s", "script": SCRIPT, "workdir": "/", **fields}
    return int(cluster.client.call("POST", "jobs", body={"job": job}).json()["id"])


def test_a_job_runs_as_the_account_of_its_team(cluster):
    id = submit(cluster, gpus=2)
    cluster.until_state(id, "COMPLETED")
    for rank in range(2):
        said = cluster.client.call("GET", f"jobs/{id}/logs", {"rank": rank}).data.decode()
        assert said.startswith("I am nobody 65534"), said
        assert "mask 0077" in said
        assert "NoNewPrivs:\t1" in said
        assert "the node's key is closed" in said
        assert "other attempts are closed" in said


def test_it_is_found_again_and_stopped_by_a_new_agent(cluster):
    id = submit(cluster, gpus=1, env={"SECONDS_TO_SLEEP": "600"})
    cluster.until_state(id, "RUNNING")
    owners = {os.stat(f"/proc/{pid}").st_uid for pid in cluster.processes_of(id)}
    assert owners == {65534}, "shim and member alike"
    cluster.kill_agent("a")
    cluster.start_agent("a", "cpu:2", "--accounts", str(cluster.state / "accounts.toml"))
    cluster.eventually(lambda: cluster.nodes_up() == ["a"], "the agent is back")
    assert cluster.job(id)["attempt"] == 1
    cluster.client.act(id, "cancel")
    cluster.until_state(id, "CANCELLED")
    cluster.eventually(lambda: cluster.free_devices() == 2, "its device comes free")


def test_a_team_without_an_account_is_told_so(cluster):
    id = submit(cluster, team="vision")
    cluster.until(id, lambda job: job["faults"] > 0 or job["result"] is not None, "a refusal")
    assert any("no Unix account for user" in event["message"] for event in cluster.events(id))
