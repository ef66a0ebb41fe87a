"""A site's own health check, with real daemon and agents: drained and resumed by themselves, within the budget."""


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def drains(cluster):
    nodes = cluster.client.call("GET", "nodes").json()["nodes"]
    return {node["id"]: (node["drain"]["by"], node["drain"]["reason"]) for node in nodes if node["drain"] is not None}


def test_a_node_that_is_not_well_is_drained_until_it_is_and_a_hanging_check_stops_nothing(cluster, tmp_path):
    sick, hang = tmp_path / "sick", tmp_path / "hang"
    check = script(
        tmp_path / "check",
        f'test -e {hang} && sleep 1000; test -e {sick}-"$JCT_NODE" && cat {sick}-"$JCT_NODE" && exit 1; exit 0',
    )
    options = ("--health-check", str(check), "--health-every", "0.2", "--health-timeout", "1")
    cluster.start_daemon()
    for node in ("a", "b"):
        cluster.start_agent(node, "fake:1", *options)
    cluster.connect()
    cluster.eventually(lambda: len(cluster.nodes_up()) == 2, "both agents register")
    running = cluster.submit(work={"total": "1000000 steps"}, gpus=2)
    cluster.until_state(running, "RUNNING")

    (tmp_path / "sick-a").write_text("fan 3 is dead\nand more\n")
    cluster.eventually(lambda: drains(cluster) == {"a": ("health-check", "fan 3 is dead")}, "a is drained")
    assert cluster.job(running)["state"] == "RUNNING"
    (tmp_path / "sick-b").write_text("hot\n")
    cluster.eventually(lambda: "DrainBudgetSpent" in kinds(cluster), "the budget holds")
    assert list(drains(cluster)) == ["a"]
    cluster.client.act(running, "cancel")
    cluster.until_state(running, "CANCELLED")
    assert cluster.free_devices() == 1
    waiting = cluster.submit(work={"total": "1 steps"}, gpus=2)
    (tmp_path / "sick-b").unlink()

    cluster.client.call("POST", "nodes/b/drain", body={"reason": "repair"})
    cluster.kill_daemon()
    cluster.restart_daemon()
    assert drains(cluster) == {"a": ("health-check", "fan 3 is dead"), "b": ("admin", "repair")}
    hang.touch()
    late = {"a": ("health-check", "the health check took longer than 1 s"), "b": ("admin", "repair")}
    cluster.eventually(lambda: drains(cluster) == late, "the hanging check is told")
    assert set(cluster.nodes_up()) == {"a", "b"}
    (tmp_path / "sick-a").unlink()
    hang.unlink()
    cluster.eventually(lambda: drains(cluster) == {"b": ("admin", "repair")}, "exactly its own drain is taken back")
    cluster.client.call("POST", "nodes/b/resume")
    cluster.until_state(waiting, "COMPLETED")
    assert {"NodeUnwell", "NodeWell", "DrainBudgetSpent"} <= kinds(cluster)


def kinds(cluster):
    return {event["kind"] for event in cluster.client.events("events")}
