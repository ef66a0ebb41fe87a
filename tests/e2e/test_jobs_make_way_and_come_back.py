"""Priority with preemption on real workers: who must wait is checkpointed, and goes on as if nothing had been."""

from cluster import Cluster
from gang import Site, curve, plan


def test_a_preempted_job_resumes_on_another_stage_count_without_changing_a_bit(cluster: Cluster, site: Site) -> None:
    arguments = {"steps": 150, "dropout": 0.1}
    important = {"arguments": {"steps": 100_000, "pace_s": 0.1}, "priority": 80}
    cluster.begin(one="cpu:1", two="cpu:1")
    measured = cluster.submit(**important)
    cluster.until_step(measured, 1)
    cluster.client.act(measured, "cancel")
    cluster.until_state(measured, "CANCELLED")
    low = cluster.submit(
        arguments={**arguments, "pace_s": 0.02}, checkpoint=True, gpus={"min": 1, "max": 2}, priority=10,
        parallel={"micro_batch_size": 2},
    )
    cluster.until_step(low, 2)
    high = cluster.submit(**important, gpus=2)
    cluster.until_step(high, 1)
    cluster.client.call("POST", "nodes/two/drain", body={"reason": "test"})
    cluster.client.act(high, "cancel")
    ended = cluster.until_state(low, "COMPLETED", patience_s=120)
    trained = [attempt for attempt in ended["attempts"] if attempt["kind"] == "train"]
    assert ended["preemptions"] == 1
    assert [attempt["stages"] for attempt in trained] == [2, 1]
    alone = site.launch(plan((0, 6), microbatches=4, size=2), site.spec(arguments=arguments, directory=None))
    alone.wait()
    alone.hang_up()
    lines = {line["step"]: line for line in cluster.metrics(low) if "loss" in line}
    assert {step: (line["loss_hex"], line["grad_norm_hex"]) for step, line in lines.items()} == curve(alone)


def test_freed_devices_go_to_the_preemptor_and_to_nobody_else(cluster: Cluster) -> None:
    cluster.begin(one="cpu:2")
    low = cluster.submit(arguments={"steps": 300}, gpus=2, priority=10, checkpoint=True)
    cluster.until_step(low, 2)
    small = cluster.submit(arguments={"steps": 5}, gpus=1, priority=10)
    high = cluster.submit(arguments={"steps": 5}, gpus=2, priority=90)
    cluster.until_state(high, "COMPLETED")
    stops = [event["message"] for event in cluster.events(low) if event["kind"] == "Stopping"]
    assert sum(f"preempted for job {high}" in message for message in stops) >= 1
    (ended,) = [event["seq"] for event in cluster.events(high) if event["kind"] == "Ended"]
    assert all(event["seq"] > ended for event in cluster.events(small) if event["kind"] == "Placed")


def test_the_ledger_of_a_job_that_was_preempted_sums_to_its_whole_time(cluster: Cluster) -> None:
    cluster.begin(one="cpu:1")
    low = cluster.submit(arguments={"steps": 60}, gpus=1, priority=10, checkpoint=True)
    cluster.until_step(low, 2)
    cluster.until_state(cluster.submit(arguments={"steps": 3}, gpus=1, priority=90), "COMPLETED")
    ledger = cluster.until_state(low, "COMPLETED")["ledger"]
    parts = [ledger[name] for name in ("queueing_s", "startup_s", "training_s", "preemptions_s", "cleanup_s")]
    assert all(part >= 0 for part in parts)
    assert round(sum(parts), 6) == ledger["total_s"]
