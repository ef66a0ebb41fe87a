"""Reports come from processes that run users' code: whatever they hold, the core, the store and passes go on."""

import asyncio
from dataclasses import replace as changed
from math import inf, nan

import pytest
from msgspec.structs import replace
from samples import gpt_profile
from small_cluster import SmallCluster

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.core.entities import JobState
from scheduler.core.events import NodeReports
from scheduler.core.timers import next_deadline
from scheduler.jobfile import parse_document
from scheduler.protocol.messages import Cause, Evaluation, Report
from scheduler.protocol.plausible import LONGEST_TEXT, plausible

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "gpus": 4, "work": {"total": "100000 steps"}}
HUGE = 2**64 - 1
PLAN = ParallelPlan((StagePlan(0, 2, (0,), (4,)), StagePlan(2, 4, (1,), (4,))), 4, 1)


def training(cluster: SmallCluster) -> Report:
    """What the pilot of a job that trains has said last."""
    id = asyncio.run(cluster.submit(parse_document(JOB), "k", "eva", None))
    cluster.advance(20)
    return max((one for one in cluster.state.reports.values() if one.job == id and one.step), key=lambda one: one.step)


@pytest.mark.parametrize(
    "lie",
    [
        {"step_time_s": inf}, {"step_time_s": 1e308}, {"step_time_s": nan}, {"step_time_s": -1.0},
        {"step": HUGE}, {"saved": HUGE}, {"total_steps": HUGE}, {"global_batch": HUGE}, {"resumed_step": HUGE},
        {"total_steps": -5}, {"pid": HUGE}, {"last_evaluation": Evaluation(step=HUGE, loss=1.0)},
        {"first_evaluation": Evaluation(step=1, loss=nan)}, {"plan": ParallelPlan((), 4, 1)},
        {"plan": changed(PLAN, stages=(StagePlan(0, 4, (), ()),)), "revision": 1},
        {"store": "x" * 10**6}, {"fingerprint": "x" * 10**6},
        {"exit_code": HUGE}, {"exit_code": 2**31}, {"signal": HUGE}, {"profiles": (changed(gpt_profile(), layers=()),)},
    ],
    ids=str,
)  # fmt: skip
def test_a_lie_costs_only_what_it_was_about(cluster, lie):
    report = training(cluster)
    node = cluster.state.members[report.key].node
    told = replace(report, seq=report.seq + 1, **lie)
    cluster._step(NodeReports(node=node, session=cluster.state.said_hello[node], reports=(told,)))
    next_deadline(cluster.state, cluster.now_us(), cluster.settings)
    cluster.advance(2)
    assert cluster.state.jobs[report.job].state is JobState.ACTIVE
    assert cluster.state.progress[report.job].step > report.step
    assert len(cluster.state.attempts[report.key[:2]].store or "") <= LONGEST_TEXT
    assert len(cluster.state.jobs[report.job].fingerprint or "") <= LONGEST_TEXT


@pytest.mark.parametrize("size", [0, -1, HUGE])
def test_a_probe_that_measured_for_a_size_that_there_is_not_fails_its_job(size):
    probe = Report(
        job=1, attempt=1, member=0, seq=3, phase="EXITED", cause=Cause.PROBE_DONE,
        profiles=(changed(gpt_profile(), microbatch_size=size),),
    )  # fmt: skip
    found = plausible(probe)
    assert (found.profiles, found.cause) == ((), Cause.BAD_SPEC)


@pytest.mark.parametrize("seconds", [nan, inf, -1.0])
def test_layers_that_take_no_time_that_there_is_are_not_planned_with(seconds):
    first, *others = gpt_profile().layers
    profile = changed(gpt_profile(), layers=(changed(first, forward_s=seconds), *others))
    assert plausible(Report(job=1, attempt=1, member=0, seq=1, phase="PROBING", profiles=(profile,))).profiles == ()


def test_what_can_be_true_stays_as_it_is():
    report = Report(
        job=1, attempt=1, member=0, seq=1, phase="TRAINING", step=0, saved=0, total_steps=10, global_batch=8,
        loss=nan, step_time_s=1e-6, plan=PLAN, exit_code=-11, profiles=(gpt_profile(),), message="x" * LONGEST_TEXT,
    )  # fmt: skip
    assert plausible(report) is report
