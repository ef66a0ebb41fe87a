"""kill -9 of any process at an awkward moment: no job is lost, workers go on, and training resumes where it was."""

import json
import os
import signal

from cluster import Cluster, children

LONG = {"steps": 400}


def test_kill_of_the_daemon_changes_nothing_and_stops_no_worker(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    running = cluster.submit(arguments=LONG, gpus=2, name="first", checkpoint=True)
    waiting = cluster.submit(arguments={"steps": 5}, gpus=2, name="second", priority=40)
    held = cluster.submit(arguments={"steps": 5}, gpus=1, name="third", priority=30)
    cluster.client.act(held, "hold")
    before = cluster.until_step(running, 3)
    processes = cluster.members(running)
    cluster.kill_daemon()
    cluster.restart_daemon()
    after = cluster.until_step(running, before["step"] + 3)
    assert cluster.members(running) == processes
    assert len(processes) == 2
    assert (after["id"], after["name"], after["submitted"]) == (before["id"], before["name"], before["submitted"])
    assert [attempt["attempt"] for attempt in after["attempts"]] == [a["attempt"] for a in before["attempts"]]
    assert cluster.job(waiting)["state"] == "PENDING"
    assert cluster.job(waiting)["priority"] == 40
    assert cluster.job(held)["state"] == "HELD"


def test_b42_a_job_that_ends_while_the_daemon_is_down_is_found_completed(cluster: Cluster) -> None:
    cluster.begin(one="cpu:1")
    job = cluster.submit(arguments={"steps": 40}, gpus=1, checkpoint=True)
    cluster.until_step(job, 2)
    (pid,) = cluster.members(job).values()
    cluster.kill_daemon()
    cluster.eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the member ends by itself")
    cluster.restart_daemon()
    ended = cluster.until_state(job, "COMPLETED")
    assert len([a for a in ended["attempts"] if a["kind"] == "train"]) == 1


def test_b20_kill_of_an_agent_leaves_its_ranks_and_the_next_one_adopts_them(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(arguments=LONG, gpus=2, checkpoint=True)
    before = cluster.until_step(job, 3)
    processes = cluster.members(job)
    cluster.kill_agent("one")
    cluster.start_agent("one", "cpu:2")
    after = cluster.until_step(job, before["step"] + 5)
    assert cluster.members(job) == processes
    assert after["attempt"] == before["attempt"]


def test_an_agent_that_comes_back_with_other_devices_still_answers_for_its_ranks(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(arguments=LONG, gpus=2, checkpoint=True)
    before = cluster.until_step(job, 3)
    processes = cluster.members(job)
    cluster.kill_agent("one")
    cluster.start_agent("one", "fake:1")
    cluster.until_step(cluster.submit(gpus=1), 1)
    after = cluster.until_step(job, before["step"] + 5)
    assert cluster.members(job) == processes
    assert after["attempt"] == before["attempt"]


def test_a_rank_that_ends_while_the_agent_is_down_is_reported_by_the_next_agent(cluster: Cluster) -> None:
    cluster.begin(one="cpu:1")
    job = cluster.submit(arguments={"steps": 40}, gpus=1, checkpoint=True)
    cluster.until_step(job, 2)
    (pid,) = cluster.members(job).values()
    cluster.kill_agent("one")
    cluster.eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the member ends by itself")
    cluster.start_agent("one", "cpu:1")
    assert cluster.until_state(job, "COMPLETED")["exit_code"] == 0


def test_b21_kill_of_a_rank_ends_the_attempt_and_the_job_resumes_from_its_checkpoint(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(arguments={"steps": 120}, gpus=2, checkpoint=True)
    saved = cluster.until(job, lambda seen: bool(seen["checkpoint_step"]), "a checkpoint")
    os.kill(cluster.members(job)[0], signal.SIGKILL)
    cluster.until(
        job, lambda seen: seen["attempts"][saved["attempt"] - 1]["ended"] is not None, "the attempt's end", 10.0
    )
    ended = cluster.until_state(job, "COMPLETED")
    lost, resumed = [attempt for attempt in ended["attempts"] if attempt["kind"] == "train"]
    assert lost["cause"] == "rank_lost"
    assert resumed["resumed_step"] >= saved["checkpoint_step"]
    steps = [line["step"] for line in cluster.metrics(job) if "loss" in line]
    assert sorted(set(steps)) == list(range(1, 121))


def test_kill_of_the_shim_ends_its_ranks_and_the_job_resumes(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    job = cluster.submit(arguments={"steps": 100}, gpus=2, checkpoint=True)
    cluster.until(job, lambda seen: bool(seen["checkpoint_step"]), "a checkpoint")
    members = set(cluster.members(job).values())
    (shim,) = cluster.state.glob(f"agents/one/attempts/{job}.2/shim.json")
    os.kill(json.loads(shim.read_text())["pid"], signal.SIGKILL)
    ended = cluster.until_state(job, "COMPLETED")
    assert [a["cause"] for a in ended["attempts"]] == ["probe_done", "rank_lost", "finished"]
    assert not members & set(cluster.processes_of(job))


def test_an_agent_collects_every_shim_it_has_started(cluster: Cluster) -> None:
    cluster.begin(one="cpu:1")
    for _ in range(2):
        cluster.until_state(cluster.submit(gpus=1, arguments={"steps": 2}), "COMPLETED")
    agent = cluster.agents["one"].pid
    cluster.eventually(lambda: children(agent) == [], "no child is left, not even as a zombie")


def test_a_disk_too_full_for_logs_costs_only_the_logs(cluster: Cluster) -> None:
    for log in (cluster.daemon_folder / "jctd.log", cluster.state / "agents" / "one" / "agent.log"):
        log.parent.mkdir(parents=True)
        log.symlink_to("/dev/full")
    cluster.begin(one="fake:1")
    job = cluster.submit(gpus=1)
    cluster.until_step(job, 1)
