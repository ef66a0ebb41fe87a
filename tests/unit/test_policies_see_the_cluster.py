"""What the core tells policies about tenants, devices and running jobs."""

import asyncio
from dataclasses import replace

import pytest
from small_cluster import SmallCluster

from policies.model.cluster import Observed
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, Job
from scheduler.core.events import Order, Verb, Write
from scheduler.core.preemptible import preemptible
from scheduler.core.records import Drain, PriorityClass, Queue, Reservation, Team, User
from scheduler.core.settings import US
from scheduler.core.snapshot import remaining_steps, take_snapshot, work_known
from scheduler.core.state import Progress, State
from scheduler.jobfile import parse_document
from scheduler.protocol.spec import CheckpointSpec, JobSpec

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "work": {"total": "100000 steps"}}


@pytest.fixture
def cluster(tmp_path):
    small = SmallCluster(tmp_path)
    yield small
    small.close()


def submit(cluster: SmallCluster, user: str = "eva", **fields) -> int:
    return asyncio.run(cluster.submit(parse_document({**JOB, **fields}), "k", user, None))


def write(cluster: SmallCluster, record) -> None:
    cluster._step(Write(request=1, actor="root", record=record))


def look(cluster: SmallCluster):
    return take_snapshot(cluster.state, cluster.now_us())


def test_drained_and_reserved_devices_are_told_as_such(cluster):
    write(cluster, Drain(name="device/n0-0", reason="fan", by="root", since_us=0))
    now = cluster.now_us()
    write(cluster, Reservation(name="r", nodes=("n1",), from_us=now, until_us=now + US, team="vision"))
    devices = {device.id: device for device in look(cluster).devices}
    assert [devices[id].offered for id in ("n0-0", "n0-1", "n1-0")] == [False, True, True]
    assert [devices[id].reserved_for for id in ("n0-0", "n1-0")] == ["", "vision"]
    write(cluster, Reservation(name="r", nodes=("n1",), from_us=now, until_us=now + US))
    assert not any(device.offered for device in look(cluster).devices if device.node == "n1")


def test_a_node_tells_the_switch_it_hangs_on(cluster):
    cluster.state.labels["n1"] = {"switch": "left"}
    assert {device.node: device.switch for device in look(cluster).devices} == {"n0": "", "n1": "left"}


def test_teams_take_part_in_fair_share_once_one_is_set(cluster):
    submit(cluster, team="a")
    submit(cluster, team="b")
    cluster.advance(60)
    assert look(cluster).teams == ()
    write(cluster, Team(name="a", weight=3.0, max_devices=2))
    views = {team.name: team for team in look(cluster).teams}
    assert (views["a"].weight, views["a"].max_devices, views["b"].weight) == (3.0, 2, 1.0)
    assert views["b"].share_used == pytest.approx(3 * views["a"].share_used, rel=0.2), "both used about the same"


def test_caps_policies_and_guarantees_are_told(cluster):
    write(cluster, User(name="eva", max_devices=3))
    write(cluster, Queue(name="night", policy="fifo", max_devices=4))
    write(cluster, PriorityClass(name="sla", value=70, guaranteed=True))
    spec = replace_class(parse_document({**JOB, "gpus": {"min": 2, "max": 4}, "queue": "night"}), "sla")
    id = asyncio.run(cluster.submit(spec, "k", "eva", None))
    seen = look(cluster)
    assert [user.max_devices for user in seen.users] == [3]
    assert {queue.name: (queue.policy, queue.max_devices) for queue in seen.queues}["night"] == ("fifo", 4)
    (view,) = (job for job in seen.jobs if job.id == id)
    assert (view.guaranteed, view.queue, view.user) == (2, "night", "eva")


def test_a_cap_makes_only_those_waiting_jobs_look_new_whose_bound_it_changes(cluster):
    """What looks the same is not shown to the policy's process again."""
    for team in ("a", "b"):
        submit(cluster, team=team, gpus={"min": 1, "max": 4})
    seen = []
    for most in (3, 3, 2):
        write(cluster, Team(name="a", max_devices=most))
        seen.append({job.team: job for job in look(cluster).jobs})
    assert [views["a"].menu.max_devices for views in seen] == [3, 3, 2]
    assert seen[0]["a"] is seen[1]["a"]
    assert seen[0]["b"] is seen[1]["b"] is seen[2]["b"]


def test_a_waiting_job_looks_the_same_whatever_the_sentence_why_it_waits(cluster):
    id = submit(cluster, gpus=4)
    (before,) = look(cluster).jobs
    job = cluster.state.jobs[id]
    cluster.state.jobs[id] = replace(job, reason="It needs 4 of 4; 1 is free.", reason_code="Resources")
    assert look(cluster).jobs[0] is before
    cluster.state.jobs[id] = replace(job, saved_step=7)
    assert look(cluster).jobs[0] is not before


def replace_class(spec: JobSpec, name: str) -> JobSpec:
    from msgspec.structs import replace as changed

    return changed(spec, priority_class=name)


def test_what_a_running_job_shows_is_told_and_forgotten_with_the_job(cluster):
    id = submit(cluster)
    cluster.advance(90)
    (view,) = look(cluster).jobs
    (seen,) = view.observed
    assert (seen.plan, seen.devices) == (view.plan, len(view.devices))
    assert seen.step_time_s > 0
    asyncio.run(cluster.cancel(id, "eva", "test"))
    cluster.advance(60)
    assert cluster.state.observed == {}


def test_a_command_that_tells_how_far_it_is_and_how_fast_has_so_much_left():
    spec = JobSpec(name="c", workdir="/w", command=("train",), max_devices=4, time_limit_s=7_200.0)
    job = Job(id=1, spec=spec, user="eva", priority=50, submitted_us=0, total_steps=1_000)
    state = State(epoch=1, jobs={1: job})
    assert not work_known(state, job), "nobody knows what a step of it takes"
    assert remaining_steps(state, job) == 7_200
    state.progress[1] = Progress(step=400)
    state.observed[1] = {("gpu", None): Observed("gpu", 1, None, 2.0)}
    assert work_known(state, job)
    assert remaining_steps(state, job) == pytest.approx(600 * 2.0, rel=0.05), "seconds on one device"
    state.observed[1] = {("gpu", None): Observed("gpu", 1, None, 1e9)}
    endless = replace(job, total_steps=2**53)
    assert remaining_steps(state, endless) < 2**63, "a policy in another process can be told"


def test_a_job_may_be_preempted_again_only_when_it_has_come_on(cluster):
    spec = JobSpec(name="j", workdir="/w", entrypoint="m:f", checkpoint=CheckpointSpec(dir="/c"))
    job = Job(id=1, spec=spec, user="eva", priority=50, submitted_us=0, saved_step=7)
    attempt = Attempt(job=1, number=2, kind=AttemptKind.TRAIN, created_us=0, state=AttemptState.RUNNING, running_us=0,
                      resumed_step=7)  # fmt: skip
    state = State(epoch=1)
    assert preemptible(state, job, attempt, US)
    job = replace(job, preemptions=1)
    state.progress[1] = Progress(step=7)
    assert not preemptible(state, job, attempt, US)
    state.progress[1] = Progress(step=8)
    assert preemptible(state, job, attempt, US)


def test_one_that_keeps_nothing_must_run_longer_than_ever_before_it_is_preempted_again(cluster):
    job = Job(id=1, spec=JobSpec(name="j", workdir="/w", command=("x",)), user="eva", priority=50, submitted_us=0,
              preemptions=1)  # fmt: skip
    first = Attempt(job=1, number=1, kind=AttemptKind.COMMAND, created_us=0, state=AttemptState.ENDED, running_us=0,
                    stopping_us=60 * US)  # fmt: skip
    second = replace(first, number=2, state=AttemptState.RUNNING, running_us=100 * US, stopping_us=None)
    state = State(epoch=1, attempts={(1, 1): first, (1, 2): second})
    assert not preemptible(state, job, second, 150 * US)
    assert preemptible(state, job, second, 161 * US)


def test_the_minimum_runtime_begins_again_with_each_change_of_shape(cluster):
    job = Job(id=1, spec=JobSpec(name="j", workdir="/w", entrypoint="m:f", min_runtime_s=60.0), user="eva",
              priority=50, submitted_us=0)  # fmt: skip
    attempt = Attempt(job=1, number=1, kind=AttemptKind.TRAIN, created_us=0, state=AttemptState.RUNNING, running_us=0)
    state = State(epoch=1)
    assert preemptible(state, job, attempt, 61 * US)
    state.changed_us[1] = 30 * US
    assert not preemptible(state, job, attempt, 61 * US)


def test_an_admins_preemption_counts(cluster):
    id = submit(cluster, max_preemptions=1)
    cluster.advance(90)
    cluster._step(Order(request=1, job=id, verb=Verb.PREEMPT, actor="root"))
    cluster.advance(150)
    (view,) = look(cluster).jobs
    assert (view.preemptions, view.max_preemptions) == (1, 1)
