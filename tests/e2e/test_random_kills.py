"""kill -9 at random moments on everything there is: jobs still end, nothing is lost, doubled or left behind."""

import contextlib
import json
import os
import random
import signal
import time

import pytest
from cluster import Cluster

STEPS = 80


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_jobs_end_whatever_is_killed(cluster: Cluster, seed: int) -> None:
    _rounds(cluster, random.Random(seed), 15)


def test_jobs_end_whatever_is_killed_in_a_few_rounds(cluster: Cluster) -> None:
    _rounds(cluster, random.Random(42), 5)


def _rounds(cluster: Cluster, rng: random.Random, count: int) -> None:
    cluster.begin(one="cpu:2", two="cpu:2")
    jobs = [
        cluster.submit(arguments={"steps": STEPS}, gpus={"min": 1, "max": 2}, checkpoint=True, priority=priority)
        for priority in (50, 50, 60)
    ]
    for _ in range(count):
        time.sleep(rng.uniform(0.1, 2.5))  # the moment is what is random
        _kill_something(cluster, rng)
    for job in jobs:
        ended = cluster.until(job, lambda seen: seen["result"] is not None, "its end", 240.0)
        assert ended["result"] == "COMPLETED", ended["reason"]
        steps = {line["step"] for line in cluster.metrics(job) if "loss" in line}
        assert steps == set(range(1, STEPS + 1))
        numbers = [attempt["attempt"] for attempt in ended["attempts"]]
        assert numbers == list(range(1, len(numbers) + 1))
    cluster.eventually(lambda: cluster.free_devices() == 4, "all devices are free")


def _kill_something(cluster: Cluster, rng: random.Random) -> None:
    match rng.choice(["daemon", "one", "two", "member", "member", "shim"]):
        case "daemon":
            cluster.kill_daemon()
            cluster.restart_daemon()
        case "one" | "two" as node:
            cluster.kill_agent(node)
            time.sleep(rng.uniform(0.0, 1.0))
            cluster.start_agent(node, "cpu:2")
        case "member":
            _kill(rng, [pid for job in (1, 2, 3) for pid in cluster.members(job).values()])
        case _:
            files = cluster.state.glob("agents/*/attempts/*/shim.json")
            _kill(rng, [json.loads(file.read_text())["pid"] for file in files if not (file.parent / "done").exists()])


def _kill(rng: random.Random, pids: list[int]) -> None:
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
