"""Fake devices consume the time that a profile says, as the planner prices it."""

import json
from pathlib import Path

from cluster import Cluster


def _profile(folder: Path, seconds: float) -> str:
    layers = [{"name": f"l{i}", "forward_s": seconds, "backward_s": 2 * seconds} for i in range(4)]
    file = folder / "profile.json"
    file.write_text(json.dumps({"microbatch_size": 1, "layers": layers}))
    return str(file)


def test_a_step_takes_what_the_profile_says(cluster: Cluster, tmp_path: Path) -> None:
    cluster.begin(one="fake:2")
    job = cluster.submit(
        gpus=2, profile=_profile(tmp_path, 0.01), work={"total": "4 steps"},
        parallel={"global_batch": 4, "micro_batch_size": 1},
    )
    ended = cluster.until_state(job, "COMPLETED")
    assert ended["attempts"][-1]["plan"]["bounds"] == [[0, 2], [2, 4]]
    step_s = (4 + 2 - 1) * 2 * 0.03  # one more micro-batch than there are, through two layers a stage
    assert ended["ledger"]["training_s"] >= 2 * step_s  # it counts from the end of the first step


def test_a_profile_that_is_none_fails_the_job_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    cluster.begin(one="fake:1")
    job = cluster.submit(gpus=1, profile=str(tmp_path / "missing.json"))
    assert "missing.json" in cluster.until_state(job, "FAILED")["reason"]["text"]
