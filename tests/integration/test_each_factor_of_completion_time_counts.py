"""What a completion time depends on, one factor changed at a time: each moves its own part of the whole (JCT-02)."""

import asyncio
from dataclasses import replace

import pytest
from samples import gpt_profile

from policies.jct.menu import build_menu
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind, Link
from policies.registry import find
from scheduler.core.events import Change, Write
from scheduler.core.records import Team
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate, Pace, run_ahead
from scheduler.protocol.spec import CheckpointSpec, JobSpec

LONG, SHORT = 4_000, 400
"""Steps."""


def submit(cluster, name: str, steps: int, devices: int = 4, team: str = "default") -> int:
    spec = JobSpec(
        name=name, team=team, entrypoint="m:f", workdir="/w", total_steps=steps,
        checkpoint=CheckpointSpec(dir=f"/checkpoints/{name}"), min_devices=devices, max_devices=devices,
    )  # fmt: skip
    return asyncio.run(cluster.submit(spec, "key", "eva", None))


def foreseen(cluster, job: int, policy: str = "fifo") -> Fate:
    data = forks.encode(forks.take(cluster.state, cluster.now_us()))
    fates = run_ahead(forks.decode(data), find(policy), 0, Pace(round_s=1.0), lambda: False)
    return next(fate for fate in fates if fate.job == job)


def only_queueing_fell(before: Fate, after: Fate) -> bool:
    same = [(before.startup_s, after.startup_s), (before.training_s, after.training_s)]
    return after.queueing_s < 0.9 * before.queueing_s and all(a == pytest.approx(b, rel=0.01) for a, b in same)


# --- queueing -------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(cluster):
    """A long job waits behind one that runs; shorter ones are submitted behind it."""
    for name in ("first", "second"):
        submit(cluster, name, LONG)
        cluster.advance(8.0)
    return cluster


def test_the_order_of_the_scheduler_counts_in_queueing(queue):
    last = submit(queue, "last", SHORT)
    assert only_queueing_fell(foreseen(queue, last, "fifo"), foreseen(queue, last, "srtf"))


def test_priority_counts_in_queueing(queue):
    last = submit(queue, "last", SHORT)
    plain = foreseen(queue, last)
    queue._step(Change(request=1, job=last, actor="root", changes={"priority": 60}))
    assert only_queueing_fell(plain, foreseen(queue, last))


def test_a_quota_counts_in_queueing(cluster):
    submit(cluster, "first", LONG, devices=2, team="nlp")
    cluster.advance(8.0)
    second = submit(cluster, "second", SHORT, devices=2, team="nlp")
    free = foreseen(cluster, second)
    cluster._step(Write(request=1, actor="root", record=Team(name="nlp", max_devices=2)))
    assert only_queueing_fell(foreseen(cluster, second), free)


# --- start-up, training, what a change and an end cost ----------------------------------------------------------

BATCH = 16
SIZES = tuple(gpt_profile(size) for size in (1, 4))
KIND = DeviceKind("cpu")


def entry(kind: DeviceKind = KIND, **asked: object):
    request = replace(MenuRequest(SIZES, BATCH, 4, 4, stages=(4,)), **{"microbatches": 8, **asked})
    return build_menu(request, (kind,)).of(kind.name)[4]


@pytest.mark.parametrize("slower", [{"start_s": 30.0}, {"state_bandwidth_bytes_per_s": 1e3}], ids=["start", "load"])
def test_the_start_of_processes_and_the_loading_of_state_count_in_start_up_alone(slower):
    plain, late = entry(), entry(replace(KIND, **slower))
    assert late.startup_s > plain.startup_s + 1.0
    assert (late.step_time_s, late.plan) == (plain.step_time_s, plain.plan)


def test_a_change_saves_what_a_start_only_loads():
    slow = replace(KIND, state_bandwidth_bytes_per_s=1e3)
    assert entry(slow).resize_s - slow.start_s == pytest.approx(2 * (entry(slow).startup_s - slow.start_s))


def test_transfers_count_in_the_step_alone():
    plain, far = entry(), entry(replace(KIND, link=Link(latency_s=0.01)))
    assert far.step_time_s > 1.2 * plain.step_time_s
    assert (far.startup_s, far.resize_s) == (plain.startup_s, plain.resize_s)


def test_bubbles_count_in_the_step_by_the_number_of_micro_batches():
    """16 of 1 sample have a smaller bubble than 4 of 4, and are slower where each of them costs a constant."""
    few, many = entry(microbatches=4), entry(microbatches=16)
    assert many.step_time_s < few.step_time_s
    assert many.startup_s == few.startup_s
    dear = replace(KIND, action_s=0.05)
    assert entry(dear, microbatches=16).step_time_s > entry(dear, microbatches=4).step_time_s
