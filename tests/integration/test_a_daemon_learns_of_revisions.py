"""The core writes down what a pilot says that it runs, and gives jobs that adapt what they need to know."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_cluster import SmallCluster

from policies.ir.plan import ParallelPlan
from scheduler.core.entities import AttemptKind, AttemptState, Generation
from scheduler.core.events import NodeReports
from scheduler.core.invariants import violations
from scheduler.core.targets import targets_of
from scheduler.jobfile import parse_document
from scheduler.protocol.messages import Report

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "work": {"total": "10000000 steps"}, "gpus": 2}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SmallCluster]:
    small = SmallCluster(tmp_path)
    yield small
    assert list(violations(small.state)) == []
    small.close()


def running(cluster: SmallCluster, **fields: object) -> Generation:
    """The generation of a job that trains on two devices."""
    spec = parse_document({**JOB, "parallel": {"pipeline_stages": 2}, **fields})
    job = asyncio.run(cluster.submit(spec, "k", "eva", None))
    for _ in range(200):
        cluster.advance(1.0)
        attempt = cluster.state.open_attempt(job)
        if attempt is not None and attempt.kind is AttemptKind.TRAIN and attempt.state is AttemptState.RUNNING:
            found = cluster.state.generation_of(job, attempt.number)
            assert found is not None
            return found
    raise AssertionError("it never ran")


def moved(plan: ParallelPlan) -> ParallelPlan:
    """One layer goes from the first stage to the second."""
    first, second = plan.stages
    cut = first.stop - 1
    return replace(plan, stages=(replace(first, stop=cut), replace(second, first=cut)))


def say(cluster: SmallCluster, of: Generation, **changes: object) -> ParallelPlan:
    """The pilot reports, and this is the plan that the daemon then believes to run."""
    member = cluster.state.members[of.job, of.attempt, of.pilot]
    report = cluster.state.reports[member.job, member.attempt, member.number]
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    fresh = Report(**{**fields, "seq": report.seq + 1, **changes})
    session = next(agent.session for agent in cluster._agents if agent.node == member.node)
    cluster._step(NodeReports(node=member.node, session=session, reports=(fresh,)))
    found = cluster.state.generation_of(of.job, of.attempt)
    assert found is not None
    assert found.plan is not None
    return found.plan


def kinds(cluster: SmallCluster, job: int) -> list[str]:
    return [event.kind for event in asyncio.run(cluster.events(job, 0, 1000))]


def test_a_revision_is_written_into_the_running_generation_and_told_once(cluster: SmallCluster) -> None:
    before = running(cluster)
    assert before.plan is not None
    new = moved(before.plan)
    assert say(cluster, before, plan=new, revision=1) == new
    assert say(cluster, before, plan=new, revision=1, step=10**6) == new
    assert kinds(cluster, before.job).count("Repartitioned") == 1
    target = next(one for one in targets_of(cluster.state, "n0", cluster.settings) if one.job == before.job)
    assert target.plan == new
    assert target.generation == before.number


def test_a_plan_of_another_generation_or_size_changes_nothing(cluster: SmallCluster) -> None:
    before = running(cluster)
    assert before.plan is not None
    new = moved(before.plan)
    larger = replace(new, stages=(new.stages[0], replace(new.stages[1], ranks=(2,))))
    assert say(cluster, before, plan=new, revision=1, generation=before.number + 5) == before.plan
    assert say(cluster, before, plan=larger, revision=1) == before.plan
    assert say(cluster, before, plan=new, revision=0) == before.plan
    assert "Repartitioned" not in kinds(cluster, before.job)


@pytest.mark.parametrize("adapts", [True, False])
def test_only_a_job_that_adapts_is_given_its_layers_times(cluster: SmallCluster, adapts: bool) -> None:
    of = running(cluster, adapt=adapts)
    assert of.plan is not None
    target = next(one for one in targets_of(cluster.state, "n0", cluster.settings) if one.job == of.job)
    profile = target.spec.profile
    assert (profile is not None) == adapts
    if profile is not None:
        assert len(profile.layers) == of.plan.layer_count
        assert profile.microbatch_size == of.plan.microbatch_size
