from dataclasses import replace

import pytest
from samples import GPT, devices, gpt_profile, job, request, snapshot

from policies.ir.plan import ParallelPlan
from policies.jct.menu import build_menu, step_time_of
from policies.jct.priority import PATIENCE_S, PriorityPolicy
from policies.model.cluster import DeviceView, JobState, JobView
from policies.model.decision import Decisions, Preempt
from policies.model.device import DeviceKind


def decide(jobs: list[JobView], devs: tuple[DeviceView, ...], now_us: int = 0) -> Decisions:
    return PriorityPolicy().decide(snapshot(jobs, devs, now_us), 0)


def sizes(answer: Decisions) -> dict[int, int]:
    return {start.job: len(start.devices) for start in answer.starts}


def codes(answer: Decisions) -> dict[int, str]:
    return {wait.job: wait.code for wait in answer.waits}


def running(
    view: JobView, held: tuple[str, ...], devs: tuple[DeviceView, ...], *, preemptible: bool = True
) -> tuple[JobView, tuple[DeviceView, ...]]:
    plan: ParallelPlan = build_menu(view.menu, (DeviceKind("cpu"),)).of("cpu")[len(held)].plan
    view = replace(view, state=JobState.RUNNING, devices=held, plan=plan, preemptible=preemptible)
    return view, tuple(replace(d, holder=view.id) if d.id in held else d for d in devs)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("blocks", [4, 6, 12, 24])
@pytest.mark.parametrize("batch", [8, 16, 64])
def test_jobs_of_like_work_share_four_devices_evenly(ratio: float, blocks: int, batch: int) -> None:
    menu = request(batch=batch, profiles=(gpt_profile(1, blocks), gpt_profile(4, blocks)))
    a, b = replace(job(1, steps=int(1000 * ratio)), menu=menu), replace(job(2), menu=menu)
    assert sizes(decide([a, b], devices())) == {1: 2, 2: 2}


@pytest.mark.parametrize("ratio", [5, 8, 20])
@pytest.mark.parametrize("blocks", [4, 6, 12, 24])
@pytest.mark.parametrize("batch", [8, 16, 64])
def test_a_much_longer_job_gets_three_of_four(ratio: int, blocks: int, batch: int) -> None:
    menu = request(batch=batch, profiles=(gpt_profile(1, blocks), gpt_profile(4, blocks)))
    a, b = replace(job(1), menu=menu), replace(job(2, steps=1000 * ratio), menu=menu)
    assert sizes(decide([a, b], devices())) == {1: 1, 2: 3}


def test_a_lone_job_takes_what_helps_it() -> None:
    answer = decide([job(1, maximum=3)], devices())
    (start,) = answer.starts
    assert start.plan is not None
    assert len(start.devices) == len(start.plan.stages) == 3
    assert start.step_time_s is not None
    assert start.step_time_s > 0


def test_allowed_sizes_are_the_only_sizes() -> None:
    menu = replace(request(), allowed_devices=(1, 2, 4))
    answer = decide([replace(job(1), menu=menu)], devices(1, 3))
    assert sizes(answer) == {1: 2}


def test_higher_priority_grows_strictly_first() -> None:
    assert sizes(decide([job(1, steps=100_000), job(2, priority=60, steps=10)], devices())) == {1: 1, 2: 3}


def test_an_unknown_job_is_probed_on_one_device_and_its_fair_share_is_kept() -> None:
    answer = decide([job(1, probed=False), job(2)], devices())
    assert sizes(answer) == {1: 1, 2: 2}
    assert next(start.plan for start in answer.starts if start.job == 1) is None


def test_a_probed_job_does_not_take_what_a_running_probe_will_need() -> None:
    probe = replace(job(1, minimum=2, probed=False), state=JobState.RUNNING, devices=("n0d0",))
    devs = tuple(replace(d, holder=1) if d.id == "n0d0" else d for d in devices())
    assert sizes(decide([probe, job(2)], devs)) == {2: 2}
    assert sizes(decide([probe, job(2, priority=60)], devs)) == {2: 3}, "a more important job is not held back"


def test_a_probe_leaves_the_only_node_that_a_more_important_job_does_not_avoid() -> None:
    devs = (*devices(1, 2), DeviceView("n1d0", "n1", "cpu", None))
    important = replace(job(1, maximum=1, priority=60), avoid=("n0",))
    answer = decide([job(2, maximum=1, probed=False), important], devs)
    assert {start.job: start.devices for start in answer.starts} == {1: ("n1d0",), 2: ("n0d0",)}


def test_a_more_important_job_preempts_what_it_needs_and_is_promised_the_devices() -> None:
    a, devs = running(job(1), ("n0d0", "n0d1"), devices())
    b, devs = running(job(2), ("n1d0", "n1d1"), devs)
    answer = decide([a, b, job(3, minimum=4, priority=60)], devs)
    assert answer.preempts == (Preempt(1, 3), Preempt(2, 3)) or answer.preempts == (Preempt(2, 3), Preempt(1, 3))
    assert sizes(answer) == {3: 4}


def test_one_large_victim_is_better_than_two_small_ones_and_the_latest_goes_first() -> None:
    devs = devices(3, 2)
    views = []
    for id_, held in ((1, ("n0d0",)), (2, ("n0d1",)), (3, ("n1d0", "n1d1")), (4, ("n2d0", "n2d1"))):
        view, devs = running(job(id_), held, devs)
        views.append(view)
    answer = decide([*views, job(5, minimum=2, maximum=2, priority=60)], devs)
    assert answer.preempts == (Preempt(4, 5),)
    assert set(answer.starts[0].devices) == {"n2d0", "n2d1"}


def test_nobody_is_preempted_by_equal_priority_nor_before_a_checkpoint_nor_in_vain() -> None:
    a, devs = running(job(1), ("n0d0", "n0d1"), devices())
    b, devs = running(job(2), ("n1d0", "n1d1"), devs, preemptible=False)
    assert codes(decide([a, b, job(3, minimum=2)], devs)) == {3: "Resources"}
    answer = decide([a, b, job(3, minimum=4, priority=60)], devs)
    assert answer.preempts == ()
    assert "Job 2 of lower priority may not be stopped yet" in answer.waits[0].text


def test_devices_of_a_stopping_job_are_promised_instead_of_preempting_another() -> None:
    a, devs = running(job(1), ("n0d0", "n0d1"), devices())
    b, devs = running(job(2), ("n1d0", "n1d1"), devs)
    answer = decide([replace(a, state=JobState.STOPPING), b, job(3, minimum=2, priority=60)], devs)
    assert answer.preempts == ()
    assert [(start.job, set(start.devices)) for start in answer.starts] == [(3, {"n0d0", "n0d1"})]


def test_jobs_that_wait_for_a_gangs_end_share_all_of_its_devices() -> None:
    """Although one of its nodes came free first."""
    ending, devs = running(job(1), ("n1d0", "n1d1"), devices())
    answer = decide([replace(ending, state=JobState.STOPPING), job(2), job(3)], devs)
    assert sorted(len(start.devices) for start in answer.starts) == [2, 2]


def test_promised_devices_are_not_offered() -> None:
    devs = tuple(replace(d, promised=9) for d in devices())
    assert codes(decide([job(1)], devs)) == {1: "Resources"}


def test_each_reason_is_the_true_one() -> None:
    def reason(view: JobView, devs: tuple[DeviceView, ...] = devices()) -> str:
        return codes(decide([view], devs))[view.id]

    assert reason(job(1, minimum=5, maximum=8)) == "TooLarge"
    assert reason(replace(job(1), device_kinds=("H100",))) == "NoSuchGPUType"
    assert reason(replace(job(1), retry_at_us=5_000_000)) == "Backoff"
    assert reason(replace(job(1), blocked="Dependency: job 7 has not ended")) == "Dependency"
    assert reason(job(1), ()) == "Resources"
    assert reason(replace(job(1, minimum=3), avoid=("n0",))) == "Resources"
    tiny = tuple(replace(d, memory_bytes=1000) for d in devices())
    assert reason(job(1), tiny) == "TooLarge"
    taken = tuple(replace(d, holder=8, promised=9) if d.node == "n0" else d for d in devices())
    assert reason(job(1, minimum=3), taken) == "GangPartial"


def test_a_gang_sits_on_one_node_where_it_can_and_avoids_a_bad_one() -> None:
    (start,) = decide([job(1, maximum=2)], devices(3, 2)).starts
    assert len({device[:2] for device in start.devices}) == 1
    (start,) = decide([replace(job(1, maximum=2), avoid=("n0", "n1"))], devices(3, 2)).starts
    assert set(start.devices) == {"n2d0", "n2d1"}


def test_small_jobs_pass_a_blocked_big_one_only_if_they_do_not_delay_it() -> None:
    first, devs = running(job(1, steps=1000), ("n0d0",), devices())
    big = job(2, minimum=4)
    brief, long_ = job(3, maximum=1, steps=10), job(4, maximum=1, steps=1_000_000)
    answer = decide([first, big, brief, long_], devs)
    assert sizes(answer) == {3: 1}
    assert codes(answer) == {2: "GangPartial", 4: "Priority"}
    assert first.plan is not None
    step_s = step_time_of(first.menu, first.plan, DeviceKind("cpu"))
    assert answer.waits[0].start_in_s == pytest.approx(1000 * step_s)


def test_where_no_end_can_be_predicted_a_blocked_job_is_passed_only_for_a_while() -> None:
    devs = tuple(replace(d, holder=1) if d.id == "n0d0" else d for d in devices())
    unknown = replace(job(1, probed=False), state=JobState.RUNNING, devices=("n0d0",), plan=build_menu(
        GPT and request(), (DeviceKind("cpu"),)).of("cpu")[1].plan)  # fmt: skip
    jobs = [unknown, job(2, minimum=4), job(3, maximum=1)]
    assert sizes(decide(jobs, devs)) == {3: 1}
    assert sizes(decide(jobs, devs, now_us=int(PATIENCE_S * 1e6) + 10)) == {}
