"""BUB-13: of each running job, how busy its devices are, its bubble share, samples a second and loss, on /metrics."""

import asyncio

import msgspec
import pytest
from gang import Site, metrics, plan
from small_cluster import SmallCluster

from scheduler.api import job_metrics
from scheduler.core.events import NodeHeard, NodeReports
from scheduler.jobfile import parse_document
from scheduler.protocol.messages import Evaluation, Report
from scheduler.protocol.plausible import plausible
from scheduler.protocol.telemetry import DeviceSample, Telemetry

JOB = {"name": "secret", "entrypoint": "m:f", "workdir": "/w", "work": {"total": "10000000 steps"}}
GAUGES = tuple(job_metrics._TEXTS)


def running(cluster: SmallCluster, key: str = "k") -> int:
    id = asyncio.run(cluster.submit(parse_document({**JOB, "gpus": 1}), key, "eva", None))
    for _ in range(100):
        cluster.advance(1.0)
        attempt = cluster.state.open_attempt(id)
        if attempt is not None and attempt.kind == "train" and attempt.running_us is not None:
            return id
    raise AssertionError("it never ran")


def tells(cluster: SmallCluster, job: int, **values: object) -> None:
    """Its pilot, more than it has told so far."""
    (known,) = (report for key, report in cluster.state.reports.items() if key[:2] == (job, _attempt(cluster, job)))
    node = cluster.state.members[known.key].node
    report = msgspec.structs.replace(known, seq=known.seq + 1000, **values)
    cluster._step(NodeReports(node=node, session=cluster.state.said_hello[node], reports=(report,)))


def _attempt(cluster: SmallCluster, job: int) -> int:
    return cluster.state.jobs[job].last_attempt


def told(cluster: SmallCluster) -> dict[str, float]:
    """Gauges of jobs, by name with labels."""
    lines = cluster.metrics().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("jctd_job_")}


def test_bub13_all_of_it_is_exported_by_the_jobs_number_alone(cluster: SmallCluster) -> None:
    job = running(cluster)
    evaluated = Evaluation(step=7, loss=1.75)
    tells(cluster, job, step=9, step_time_s=0.5, loss=1.5, bubble_share=0.2, last_evaluation=evaluated, global_batch=64)
    (lease,) = cluster.state.leases_of(job, _attempt(cluster, job))
    node = cluster.state.devices[lease.device].node
    devices = (DeviceSample(id=lease.device, kind="fake", age_s=0.1, values={"busy_percent": 85.0}),)
    telemetry = Telemetry(number=1, devices=devices)
    cluster._step(NodeHeard(node=node, session=cluster.state.said_hello[node], beat=1, telemetry=telemetry))
    found = told(cluster)
    assert {name: found[f'{name}{{job="{job}"}}'] for name in GAUGES} == {
        "jctd_job_step": 9, "jctd_job_step_seconds": 0.5, "jctd_job_samples_per_second": 128, "jctd_job_loss": 1.5,
        "jctd_job_validation_loss": 1.75, "jctd_job_bubble_share": 0.2, "jctd_job_device_busy_percent": 85,
    }  # fmt: skip
    assert b"secret" not in cluster.metrics()


def test_while_a_batch_ramps_up_samples_a_second_are_those_of_its_steps(cluster: SmallCluster) -> None:
    job = running(cluster)
    tells(cluster, job, step=9, step_time_s=0.5, global_batch=64, batch=8)
    assert told(cluster)[f'jctd_job_samples_per_second{{job="{job}"}}'] == 16


def test_a_step_of_a_smaller_batch_says_nothing_of_how_long_its_plan_takes(cluster: SmallCluster) -> None:
    """Other sizes are compared by whole batches."""
    job = running(cluster)
    cluster.state.observed.pop(job, None)
    generation = cluster.state.generation_of(job, _attempt(cluster, job))
    assert generation is not None
    assert generation.plan is not None
    whole = generation.plan.global_batch
    for step, batch, seen in ((9, whole + 1, []), (10, whole, [3.0]), (11, whole - 1, [3.0])):
        tells(cluster, job, step=step, step_time_s=3.0 if batch == whole else 0.5, batch=batch)
        assert [one.step_time_s for one in cluster.state.observed.get(job, {}).values()] == seen


def test_what_an_agent_says_cannot_end_a_scrape(cluster: SmallCluster) -> None:
    job = running(cluster)
    (lease,) = cluster.state.leases_of(job, _attempt(cluster, job))
    node = cluster.state.devices[lease.device].node
    sample = DeviceSample(id=lease.device, kind="fake", age_s=0.1, values={"busy_percent": 1.7e308})
    telemetry = Telemetry(number=1, devices=(sample, sample))
    cluster._step(NodeHeard(node=node, session=cluster.state.said_hello[node], beat=1, telemetry=telemetry))
    assert f'jctd_job_device_busy_percent{{job="{job}"}}' not in told(cluster)


def test_what_is_not_known_has_no_line_and_neither_has_a_job_that_has_ended(cluster: SmallCluster) -> None:
    job = running(cluster)
    assert f'jctd_job_bubble_share{{job="{job}"}}' not in told(cluster)
    tells(cluster, job, loss=float("nan"))
    assert f'jctd_job_loss{{job="{job}"}}' not in told(cluster)
    asyncio.run(cluster.cancel(job, "eva", ""))
    cluster.advance(30)
    assert not [name for name in told(cluster) if "{" in name and "jctd_job_wait" not in name and "bucket" not in name]


def test_a_scrape_has_so_many_jobs_and_no_more(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "MOST", 2)
    jobs = [running(cluster, str(at)) for at in range(3)]
    steps = [name for name in told(cluster) if name.startswith("jctd_job_step{")]
    assert steps == [f'jctd_job_step{{job="{job}"}}' for job in reversed(jobs[1:])]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_bubble_share_that_cannot_be_is_unknown(share: float) -> None:
    said = Report(job=1, attempt=1, member=0, seq=1, phase="training", bubble_share=share)  # type: ignore[arg-type]
    assert plausible(said).bubble_share is None


def test_bub02_a_gangs_own_timers_tell_what_its_shape_idles(site: Site) -> None:
    """Two stages that sleep alike over m micro-batches idle (P - 1) / (m + P - 1) of a step, and a little more."""
    arguments = {"blocks": 4, "steps": 100_000, "global_batch": 8, "block_s": 0.004}
    shape = plan((0, 3, 6), microbatches=4, size=2)
    launched = site.launch(shape, site.spec(entrypoint="devices:job", arguments=arguments, directory=None))
    launched.wait(lambda it: it.is_running() and it.pilot.bubble_share is not None)
    share = launched.pilot.bubble_share
    launched.stop(grace_s=0)
    launched.wait()
    assert share is not None
    assert 0.2 - 0.05 < share < 1
    assert metrics(launched)
