"""Under daemon and agents: a job that may adapt changes its own cut, and the daemon learns what runs."""

import json
from pathlib import Path

from cluster import Cluster, Job

BLOCKS = 10
FOREVER = 1_000_000


def sizes(job: Job) -> list[int]:
    return [stop - first for first, stop in job["plan"]["bounds"]]


def slow(file: Path, **members: float) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({"slow": {name[1:]: factor for name, factor in members.items()}}))
    fresh.rename(file)


def test_the_daemon_learns_the_cut_that_a_job_has_chosen(cluster: Cluster, tmp_path: Path) -> None:
    weather = tmp_path / "weather.json"
    cluster.start_daemon()
    cluster.start_agent("one", "cpu:4", "--ignore-neighbours")  # this job's weather is scripted
    cluster.connect()
    arguments = {"blocks": BLOCKS, "steps": FOREVER, "global_batch": 16, "block_s": 0.004, "weather": str(weather)}
    job = cluster.submit(
        "devices:job", gpus=4, parallel={"pipeline_stages": 4, "micro_batch_size": 2}, arguments=arguments,
        adapt={"threshold": 0.6, "held": 1, "cooldown": 1},
    )  # fmt: skip
    home = sizes(cluster.until_step(job, 20))
    slow(weather, m1=3.0)
    changed = cluster.until(job, lambda seen: sizes(seen) != home, "another cut")
    assert sizes(changed)[1] < home[1]
    assert changed["attempt"] == 2, "the probe is the first attempt, and one trains to the end"
    cluster.until_step(job, changed["step"] + 2)
    events = cluster.events(job)
    changes = [event["data"] for event in events if event["kind"] == "Repartitioned"]
    assert changes[0]["revision"] >= 1
    assert sum(changes[0]["layers"]) == BLOCKS + 2
    assert any("rank 1 computes" in event["message"] for event in events if event["kind"] == "Told")
    weather.unlink()
    cluster.until(job, lambda seen: sizes(seen) == home, "the cut it was given")
    cluster.client.act(job, "cancel")
    cluster.until_state(job, "CANCELLED")
    steps = [line["step"] for line in cluster.metrics(job) if "loss" in line]
    assert steps == list(range(1, len(steps) + 1))
