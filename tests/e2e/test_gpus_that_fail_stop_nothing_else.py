"""B54 and a driver that hangs, with real daemon and agents over a stand-in for NVML: what runs goes on."""

import pytest
from standin import Standin

MISMATCH = ("error nvmlInit * 18", "error nvmlDeviceGetCount * 18")


@pytest.fixture
def gpus(tmp_path, nvml_library, monkeypatch) -> Standin:
    """Two GPUs that agents started from here find."""
    standin = Standin(tmp_path / "nvml-script")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    for name, value in standin.environment.items():
        monkeypatch.setenv(name, value)
    return standin


def devices(cluster):
    return {one["id"]: one for one in cluster.client.call("GET", "devices").json()["devices"]}


def power(cluster, id):
    measured = devices(cluster)[id]["measured"]
    return measured["values"]["power_w"] if measured is not None else None


def drains(cluster):
    nodes = cluster.client.call("GET", "nodes").json()["nodes"]
    return [node["drain"]["reason"] for node in nodes if node["drain"] is not None]


def command(cluster):
    job = {"name": "c", "workdir": "/", "command": ["sleep", "1000000"], "gpus": 1}
    return int(cluster.client.call("POST", "jobs", body={"job": job}).json()["id"])


def test_b54_a_mismatch_drains_the_node_and_is_over_by_itself_while_jobs_go_on(cluster, gpus):
    cluster.start_daemon()
    cluster.start_agent("a", None)
    cluster.connect()
    cluster.eventually(lambda: len(cluster.nodes_up()) == 1 and set(devices(cluster)) == {"GPU-a", "GPU-b"}, "GPUs")
    cluster.eventually(lambda: power(cluster, "GPU-a") == 250.0, "they are measured")
    running = command(cluster)
    cluster.until_state(running, "RUNNING")

    gpus.say(*MISMATCH)
    cluster.eventually(lambda: any("version mismatch" in why for why in drains(cluster)), "the node is drained")
    assert all("reboot" in one["reason"] for one in devices(cluster).values())
    cluster.kill_agent("a")
    cluster.start_agent("a", None)  # also one that starts now knows its GPUs
    waiting = command(cluster)
    cluster.eventually(lambda: cluster.job(waiting)["reason"]["code"] != "Pending", "a pass has looked at it")
    assert set(devices(cluster)) == {"GPU-a", "GPU-b"}
    assert cluster.job(running)["state"] == "RUNNING"

    gpus.say()
    cluster.until_state(waiting, "RUNNING")
    assert drains(cluster) == []
    assert cluster.job(running)["state"] == "RUNNING"


def test_a_gpu_that_hangs_in_its_driver_is_unhealthy_and_the_others_data_go_on(cluster, gpus):
    cluster.start_daemon()
    cluster.start_agent("a", None)
    cluster.connect()
    cluster.eventually(lambda: len(cluster.nodes_up()) == 1 and len(devices(cluster)) == 2, "GPUs")
    gpus.say("block nvmlDeviceGetPowerUsage GPU-b", "value nvmlDeviceGetPowerUsage GPU-a 111000")
    cluster.eventually(lambda: devices(cluster)["GPU-b"]["state"] == "unhealthy", "it is told")
    cluster.eventually(lambda: power(cluster, "GPU-a") == 111.0, "the other is measured")
    hanging = devices(cluster)["GPU-b"]
    assert hanging["reason"] == "the driver does not answer for it"
    assert "has not answered" in hanging["measured"]["missing"]["power_w"]
    assert (cluster.nodes_up(), drains(cluster)) == (["a"], [])
    gpus.say()
    cluster.eventually(lambda: devices(cluster)["GPU-b"]["state"] == "free", "it is well again")


def test_b54_gpus_that_nobody_has_seen_yet_are_offered_once_nvml_works(cluster, gpus):
    gpus.say(*MISMATCH)
    cluster.start_daemon()
    cluster.start_agent("a", None)
    cluster.connect()
    cluster.eventually(lambda: any("version mismatch" in why for why in drains(cluster)), "the node is drained")
    assert devices(cluster) == {}
    gpus.say()
    cluster.eventually(lambda: cluster.free_devices() == 2, "its GPUs are offered")
    assert (cluster.nodes_up(), drains(cluster), set(devices(cluster))) == (["a"], [], {"GPU-a", "GPU-b"})
