"""Faults of other schedulers' decisions (FAULTS V and B43), on the real core with the daemon's policy."""

import asyncio
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from samples import devices, job, snapshot
from small_cluster import SmallCluster

from policies.jct.joint import Joint, Settings
from policies.jct.levels import Levels
from policies.jct.patience import Patience, waiting_bound_s
from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.rooms import Rooms
from policies.model.cluster import JobView, TeamView
from policies.registry import find, find_allocator
from scheduler.core.entities import AttemptKind, AttemptState, JobState, Result
from scheduler.core.errors import JctError
from scheduler.core.events import NodeReports
from scheduler.core.invariants import violations
from scheduler.jobfile import parse_document
from scheduler.protocol.messages import Cause, Phase, Report

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "work": {"total": "10000000 steps"}}


@pytest.fixture
def cluster(tmp_path):
    small = SmallCluster(tmp_path)
    small._policy = find("jct")
    yield small
    assert list(violations(small.state)) == []
    small.close()


def submit(cluster: SmallCluster, count: int = 1, **fields) -> int:
    number = cluster.state.counters.job
    spec = parse_document({**JOB, "gpus": count, "checkpoint": {"dir": f"/c/{number}"}, **fields})
    return asyncio.run(cluster.submit(spec, "k", "eva", None))


def runs(cluster: SmallCluster, job: int) -> bool:
    attempt = cluster.state.open_attempt(job)
    return attempt is not None and attempt.kind is AttemptKind.TRAIN and attempt.state is AttemptState.RUNNING


# --- B33 ------------------------------------------------------------------------------------------------------

SMALL = Options([Option("gpu", 1, 1.0, 0.0, "one", (1,))])
GANG = Options([Option("gpu", 8, 1.0, 0.0, "all", (8,))])


@pytest.mark.parametrize("level", [0, 9], ids=["equal priority", "higher priority"])
@pytest.mark.parametrize("known", [True, False], ids=["limits known", "no limits"])
def test_b33_a_stream_of_small_jobs_does_not_starve_a_large_gang(level: int, known: bool) -> None:
    """Eight 1-device jobs of two minutes at a time, without end: the gang starts within the published bound."""
    patience = Patience(3_600.0)
    policy = Levels(Joint(Settings(bound=patience)), patience)
    rooms = Rooms([NodeRoom("n0", "gpu", 8, 8)])
    waiting, ends, made = {"gang": 0}, {}, 0
    for now in range(0, 4 * 3600, 15):
        for id in [id for id, end in ends.items() if end <= now]:
            rooms.give({"n0": 1})
            del ends[id]
        while sum(id != "gang" for id in waiting) < 8:
            made += 1
            waiting[f"s{made}"] = now
        demands = [_waiting(id, now - at, level, known) for id, at in waiting.items()]
        demands += [_running(id, end - now, level, known) for id, end in ends.items()]
        node = NodeRoom("n0", "gpu", 8, rooms.free("n0"))
        for grant in policy.allocate(Problem(float(now), (node,), tuple(demands)), 1000):
            if grant.id == "gang":
                assert now <= waiting_bound_s(patience, 600.0) + 120.0 + 15.0
                assert made >= now / 30, "short jobs filled the time until then"
                return
            rooms.take(grant.placement)
            ends[grant.id] = now + 120
            del waiting[grant.id]
    pytest.fail("the gang never started")


def _waiting(id: str, age_s: float, level: int, known: bool) -> JobDemand:
    if id == "gang":
        return JobDemand(id, age_s, GANG, 120.0 if known else None)
    return JobDemand(id, age_s, SMALL, 120.0 if known else None, level=level)


def _running(id: str, left_s: float, level: int, known: bool) -> JobDemand:
    ran_s = 120.0 - left_s
    return JobDemand(id, ran_s, SMALL, left_s if known else None, ran_s, since_change_s=ran_s, placement={"n0": 1},
                     plan="one", level=level)  # fmt: skip


# --- B34 ------------------------------------------------------------------------------------------------------


def test_b34_freed_devices_are_held_for_the_preemptor(cluster):
    """Two victims of two devices each, one of which takes longer to go; others wait for just such devices."""
    low = [submit(cluster, 2, priority=10) for _ in range(2)]
    cluster.advance(30)
    assert all(runs(cluster, job) for job in low)
    thieves = [submit(cluster, 2, priority=10, name="thief") for _ in range(3)]
    urgent = submit(cluster, 4, priority=90)
    lost = {job: cluster.state.jobs[job].preemptions for job in low}
    slow = cluster._agents[1]
    cluster._agents.remove(slow)
    for _ in range(40):
        cluster.advance(0.25)
        assert not any(runs(cluster, thief) for thief in thieves)
    cluster._agents.append(slow)
    cluster.advance(60)
    assert runs(cluster, urgent)
    assert all(cluster.state.jobs[job].preemptions == lost[job] + 1 for job in low)


def test_b34_nobody_is_preempted_twice_without_progress(cluster):
    """An hour in which an urgent job comes every few minutes."""
    low = submit(cluster, 4, priority=10)
    cluster.advance(30)
    kept: list[int] = []
    for _ in range(12):
        urgent = submit(cluster, 4, priority=90)
        before = cluster.state.jobs[low].preemptions
        cluster.advance(30, step_s=1.0)
        if cluster.state.jobs[low].preemptions > before:
            kept.append(cluster.state.jobs[low].saved_step or 0)
        asyncio.run(cluster.cancel(urgent, "root", "done"))
        cluster.advance(60, step_s=1.0)
    assert len(kept) > 3
    assert sorted(set(kept)) == kept, "each time it has come on"


# --- B36 ------------------------------------------------------------------------------------------------------


def test_b36_a_cap_is_exact_for_jobs_of_one_pass_and_for_growth(cluster):
    jobs = [replace(job(n, 1, 4), team="nlp") for n in range(1, 11)]
    for most in range(1, 9):
        snap = replace(snapshot(jobs, devices(4, 4)), teams=(TeamView("nlp", 1.0, most),))
        answer = find("jct").decide(snap, 6_000)
        assert sum(len(start.devices) for start in answer.starts) <= most
        codes = {wait.code for wait in answer.waits}
        assert codes <= {"QuotaTeam"}, "whoever waits does so for the cap, though devices are free"


# --- B37 ------------------------------------------------------------------------------------------------------


def test_b37_a_job_in_its_minimum_runtime_is_waited_for_by_name_and_no_longer(cluster):
    low = submit(cluster, 4, priority=10, min_runtime="120s")
    cluster.advance(30)
    assert runs(cluster, low)
    urgent = submit(cluster, 4, priority=90)
    cluster.advance(60)
    assert not runs(cluster, urgent)
    assert f"ob {low} of lower priority" in cluster.state.jobs[urgent].reason
    cluster.advance(150)
    assert runs(cluster, urgent)


def test_b37_what_may_not_be_preempted_is_waited_for_and_named(cluster):
    low = submit(cluster, 4, priority=10, preemptible=False)
    cluster.advance(30)
    urgent = submit(cluster, 4, priority=90)
    cluster.advance(30)
    assert f"ob {low} of lower priority may not be stopped" in cluster.state.jobs[urgent].reason
    small = submit(cluster, 1, priority=10)
    asyncio.run(cluster.cancel(low, "root", "test"))
    cluster.advance(60)
    assert runs(cluster, urgent)
    assert not runs(cluster, small)


def test_b37_an_urgent_job_lends_its_priority_to_what_it_waits_for(cluster):
    middle = submit(cluster, 4, priority=50)
    cluster.advance(30)
    parent = submit(cluster, 4, priority=10)
    cluster.advance(30)
    assert not runs(cluster, parent)
    child = submit(cluster, 1, priority=10, after={"ok": [parent]})
    submit(cluster, 1, priority=90, after={"any": [child]})
    cluster.advance(60)
    assert runs(cluster, parent)
    assert not runs(cluster, middle)


# --- B38 ------------------------------------------------------------------------------------------------------


def test_b38_a_child_of_a_parent_that_cannot_complete_is_decided_at_once(cluster):
    parent = submit(cluster)
    child = submit(cluster, after={"ok": [parent]})
    grandchild = submit(cluster, after={"ok": [child]})
    asyncio.run(cluster.cancel(parent, "eva", "test"))
    with pytest.raises(JctError, match="could never start"):
        submit(cluster, after={"ok": [parent]})
    anyway = submit(cluster, after={"any": [parent]})
    cluster.advance(60)
    for job_id in (child, grandchild):
        ended = cluster.state.jobs[job_id]
        assert (ended.state, ended.result) == (JobState.DONE, Result.CANCELLED)
        assert "DependencyFailed" in f"{ended.reason_code} {ended.reason} {ended.ended_by}"
    assert runs(cluster, anyway)
    with pytest.raises(JctError):
        submit(cluster, after={"ok": [999]})


# --- B39 ------------------------------------------------------------------------------------------------------


def test_b39_a_node_that_refuses_every_launch_is_tried_a_few_times_ever_later(cluster):
    id, begun = submit(cluster), []
    last = 0
    for _ in range(300):
        cluster.advance(1, step_s=1.0)
        attempt = cluster.state.open_attempt(id)
        if attempt is None or attempt.state is AttemptState.STOPPING:
            continue
        if attempt.number != last:
            last = attempt.number
            begun.append(cluster.now_us())
        _refuse(cluster, id, attempt.number)
    assert 2 <= len(begun) <= 6
    waits = [b - a for a, b in pairwise(begun)]
    assert waits == sorted(waits)
    assert cluster.state.jobs[id].reason_code in ("Backoff", "Resources"), "both nodes are avoided for a while"


def _refuse(cluster: SmallCluster, id: int, number: int) -> None:
    member = cluster.state.members[id, number, 0]
    said = Report(job=id, attempt=number, member=0, seq=10**6, phase=Phase.GONE, cause=Cause.START_FAILED)
    session = cluster.state.said_hello[member.node]
    cluster._step(NodeReports(node=member.node, session=session, reports=(said,)))


# --- B43 ------------------------------------------------------------------------------------------------------


def reason(*jobs: JobView, **more) -> tuple[str, str]:
    devs = more.pop("devs", devices())
    answer = find("jct").decide(replace(snapshot(jobs, devs), **more), 6_000)
    wait = next(wait for wait in answer.waits if wait.job == jobs[-1].id)
    return wait.code, wait.text


def test_b43_the_reason_is_the_binding_one() -> None:
    one = job(1)
    assert reason(job(1, 5, 8))[0] == "TooLarge"
    assert reason(replace(one, device_kinds=("H100",)))[0] == "NoSuchGPUType"
    assert reason(replace(one, retry_at_us=5_000_000))[0] == "Backoff"
    assert reason(replace(one, blocked="Dependency: waits for job 7 to end"))[0] == "Dependency"
    assert reason(one, devs=())[0] == "Resources"
    capped = reason(job(1, 2, 4), job(2, 2, 4), teams=(TeamView("team", 1.0, 3),))
    assert capped[0] == "QuotaTeam"
    assert re.fullmatch(r"team 'team' may have 3 devices; [01] are left of them\.", capped[1])
    taken = tuple(replace(device, holder=8, promised=9) if device.node == "n0" else device for device in devices())
    assert reason(job(1, 3, 4), devs=taken)[0] == "GangPartial"


def test_b43_a_model_that_fits_nowhere_is_told_what_was_tried() -> None:
    tiny = tuple(replace(device, memory_bytes=1000) for device in devices())
    assert reason(job(1), devs=tiny) == (
        "TooLarge",
        "No plan for 1 to 4 devices fits into 1e-06 GB of cpu, not even with recompute and the optimizer's state in "
        "host memory: it needs more devices, smaller micro-batches or smaller layers.",
    )
    one = job(1, 2, 2)
    stale = replace(one, menu=replace(one.menu, schedule="2bw"))
    assert "not even with the optimizer's state in host memory; 2bw cannot recompute" in reason(stale, devs=tiny)[1]
    odd = replace(one, menu=replace(one.menu, microbatches=3))
    assert "its batch does not divide" in reason(odd, devs=tiny)[1]


def test_b43_a_reason_changes_within_one_pass_and_none_is_left_behind(cluster):
    holder = submit(cluster, 4, preemptible=False)
    cluster.advance(30)
    waiting = submit(cluster, 4)
    cluster.advance(11)
    assert cluster.state.jobs[waiting].reason_code == "Resources"
    asyncio.run(cluster.cancel(holder, "eva", "test"))
    cluster.advance(60)
    assert runs(cluster, waiting)
    assert cluster.state.jobs[waiting].reason_code == ""


@pytest.mark.parametrize("policy", ["jct", "srtf", "las", "fifo", "slope"])
def test_b34_jobs_that_would_be_faster_elsewhere_do_not_stop_one_another_for_a_slower_place(policy: str) -> None:
    menu = Options([Option("fast", 1, 1.0, 0.0, "p"), Option("slow", 1, 3.0, 0.0, "p")])
    nodes = NodeRoom("f", "fast", 1, 0), NodeRoom("s", "slow", 1, 0)
    aged = {"age_s": 900.0, "menu": menu, "attained_gpu_s": 900.0, "since_change_s": 900.0, "plan": "p"}
    there = JobDemand("there", remaining_steps=1e6, placement={"f": 1}, frozen=True, **aged)
    runs = JobDemand("runs", remaining_steps=900.0, placement={"s": 1}, **aged)
    waits = JobDemand("waits", 900.0, menu, 1_000.0, attained_gpu_s=900.0, since_change_s=900.0)
    assert find_allocator(policy).allocate(Problem(0.0, nodes, (there, runs, waits)), 1000) == ()
