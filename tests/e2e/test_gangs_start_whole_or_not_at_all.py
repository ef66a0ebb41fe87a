"""One node that cannot start its part ends the whole start, is named, and is avoided for a while (FAULTS B13, B39)."""

import os
import shutil
import signal

from cluster import Cluster


def test_b13_b39_a_node_that_refuses_ends_the_whole_start_and_is_named(cluster: Cluster) -> None:
    cluster.begin(good="cpu:1", bad="cpu:1")
    attempts = cluster.state / "agents" / "bad" / "attempts"
    shutil.rmtree(attempts)
    attempts.write_text("no folder can be made here")
    job = cluster.submit(gpus=2, arguments={"steps": 3}, name="gang")
    seen = cluster.until(job, lambda seen: any(a["cause"] == "start_failed" for a in seen["attempts"]), "a refusal")
    failed = next(attempt for attempt in seen["attempts"] if attempt["cause"] == "start_failed")
    assert "cannot start" in failed["message"]
    waiting = cluster.until(job, lambda seen: (seen["reason"] or {}).get("code") == "Resources", "its reason")
    assert "bad" in waiting["reason"]["text"]
    cluster.eventually(lambda: cluster.members(job) == {}, "no rank is left on the good node")
    attempts.unlink()
    attempts.mkdir()
    alone = cluster.submit(gpus=1, arguments={"steps": 3})
    assert cluster.until_state(alone, "COMPLETED")["nodes"] in ([], ["good"], ["bad"])


def test_b21_a_rank_that_is_stopped_ends_the_attempt_and_the_job_goes_on(cluster: Cluster) -> None:
    """SIGSTOP: nobody sees a closed socket, only the shim sees the state (FAULTS B21)."""
    cluster.begin(one="cpu:2")
    job = cluster.submit(gpus=2, arguments={"steps": 150, "pace_s": 0.02}, checkpoint=True)
    cluster.until(job, lambda seen: bool(seen["checkpoint_step"]), "a checkpoint")
    os.kill(cluster.members(job)[0], signal.SIGSTOP)
    ended = cluster.until_state(job, "COMPLETED", patience_s=100)
    trained = [attempt for attempt in ended["attempts"] if attempt["kind"] == "train"]
    assert len(trained) == 2
    assert trained[0]["cause"] in ("rank_lost", "stalled")
    assert trained[1]["resumed_step"] > 0
