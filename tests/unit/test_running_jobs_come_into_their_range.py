"""Whatever the policy, a running job whose owner has changed its range of sizes is brought back into it first."""

from dataclasses import replace

import pytest
from samples import GPT, devices, job, request, snapshot

from policies.jct.menu import build_menu
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, TeamView
from policies.model.decision import Decisions, Resize
from policies.model.device import DeviceKind
from policies.registry import ALLOCATORS, find

EVERY = pytest.mark.parametrize("policy", [*sorted(ALLOCATORS), "priority"])
HOUR_US = 3_600_000_000
FOUR = ("n0d0", "n0d1", "n0d2", "n0d3")


def decide(policy: str, snap: ClusterSnapshot) -> Decisions:
    return find(policy).decide(snap, 6_000)


def running(
    id_: int, low: int, high: int, held: tuple[str, ...], there: tuple[DeviceView, ...], **more: object
) -> tuple[JobView, tuple[DeviceView, ...]]:
    """A job whose range is another now than when it got its devices. Nothing may be taken from it."""
    plan = build_menu(request(1, 8), (DeviceKind("cpu"),)).of("cpu")[len(held)].plan
    facts = {
        "state": JobState.RUNNING, "devices": held, "plan": plan, "preemptible": False, "live": True,
        "changed_us": HOUR_US, "out_of_range": not low <= len(held) <= high, **more,
    }  # fmt: skip
    view = replace(job(id_, low, high, steps=10**6), **facts)
    return view, tuple(replace(d, holder=id_) if d.id in held else d for d in there)


def only_resize(answer: Decisions) -> Resize:
    (found,) = answer.resizes
    assert answer.preempts == ()
    assert found.plan.world_size == len(found.devices)
    return found


@EVERY
def test_one_that_has_too_many_shrinks_to_the_largest_it_may_have_on_its_own_devices(policy: str) -> None:
    view, there = running(1, 1, 2, FOUR, devices(2, 4))
    found = only_resize(decide(policy, snapshot([view], there, HOUR_US)))
    assert found.job == 1
    assert len(found.devices) == 2
    assert set(found.devices) < set(FOUR)


@EVERY
def test_it_shrinks_though_its_shield_and_a_lowered_cap_are_in_the_way(policy: str) -> None:
    view, there = running(1, 1, 2, FOUR, devices(1, 4), guaranteed=4, max_preemptions=0)
    capped = replace(snapshot([view], there, HOUR_US), teams=(TeamView("team", 1.0, 1),))
    assert len(only_resize(decide(policy, capped)).devices) == 2


@EVERY
def test_what_it_gives_up_goes_to_a_job_that_waits_in_the_same_pass(policy: str) -> None:
    view, there = running(1, 1, 2, FOUR, devices(1, 4))
    answer = decide(policy, snapshot([view, replace(job(2, 2, 2), submitted_us=HOUR_US)], there, HOUR_US))
    (start,) = answer.starts
    assert {*only_resize(answer).devices, *start.devices} == set(FOUR)


@EVERY
def test_one_that_has_too_few_grows_before_a_younger_job_gets_the_devices(policy: str) -> None:
    view, there = running(1, 4, 4, ("n0d0", "n0d1"), devices(1, 4))
    answer = decide(policy, snapshot([view, replace(job(2, 1, 4), submitted_us=HOUR_US)], there, HOUR_US))
    assert set(only_resize(answer).devices) == set(FOUR)
    assert answer.starts == ()


@EVERY
def test_it_stays_on_its_own_node_where_that_has_room(policy: str) -> None:
    view, there = running(1, 3, 3, ("n1d2", "n1d3"), devices(3, 4))
    found = only_resize(decide(policy, snapshot([view], there, HOUR_US)))
    assert {"n1d2", "n1d3"} < set(found.devices)
    assert all(id.startswith("n1") for id in found.devices)


@EVERY
def test_it_keeps_what_it_has_where_it_must_go_to_other_nodes_too(policy: str) -> None:
    view, there = running(1, 3, 3, ("n0d0", "n0d1"), devices(3, 2))
    assert {"n0d0", "n0d1"} < set(only_resize(decide(policy, snapshot([view], there, HOUR_US))).devices)


@EVERY
@pytest.mark.parametrize("ahead", [{"priority": 90}, {"submitted_us": 0}])
def test_a_job_that_comes_first_gets_the_devices_and_the_other_goes_on(policy: str, ahead: dict[str, int]) -> None:
    view, there = running(1, 4, 4, ("n0d0", "n0d1"), devices(1, 4), submitted_us=1)
    answer = decide(policy, snapshot([view, replace(job(2, 2, 2), **ahead)], there, HOUR_US))
    assert [start.job for start in answer.starts] == [2]
    assert (answer.resizes, answer.preempts) == ((), ())
    told = {wait.job: wait for wait in answer.waits}[1]
    text = "Its range is 4 devices now; it goes on with 2 until then: job 2 comes first, and waits for devices too."
    assert (told.code, told.text) == ("OutOfRange", text)


@EVERY
def test_an_older_job_that_would_not_fit_there_holds_nothing_up(policy: str) -> None:
    view, there = running(1, 3, 3, ("n0d0", "n0d1"), devices(1, 4), submitted_us=1)
    answer = decide(policy, snapshot([view, replace(job(2, 4, 4), submitted_us=0)], there, HOUR_US))
    assert len(only_resize(answer).devices) == 3


@EVERY
def test_nobody_is_stopped_for_one_that_wants_to_grow_and_neither_is_it(policy: str) -> None:
    view, there = running(1, 4, 8, ("n0d0", "n0d1"), devices(1, 4))
    other, there = running(2, 2, 2, ("n0d2", "n0d3"), there, preemptible=True, priority=1)
    young = replace(job(3, 1, 1), submitted_us=HOUR_US)
    answer = decide(policy, snapshot([replace(view, preemptible=True), other, young], there, 2 * HOUR_US))
    assert [preempt for preempt in answer.preempts if preempt.job == 1] == []
    assert 1 not in {resize.job for resize in answer.resizes}
    told = {wait.job: wait.text for wait in answer.waits}[1]
    assert told == "Its range is 4 to 8 devices now; it goes on with 2 until then: it needs 2 more, and none is free."


@EVERY
def test_a_cap_keeps_it_from_growing_and_is_named(policy: str) -> None:
    view, there = running(1, 4, 4, ("n0d0", "n0d1"), devices(1, 4))
    answer = decide(policy, replace(snapshot([view], there, HOUR_US), teams=(TeamView("team", 1.0, 3),)))
    assert answer.resizes == ()
    assert "a cap of its team, user or queue" in answer.waits[0].text


@EVERY
@pytest.mark.parametrize("range_", [(1, 1), (3, 3)])
def test_who_runs_on_drained_devices_only_is_left_alone(policy: str, range_: tuple[int, int]) -> None:
    view, there = running(1, *range_, ("n0d0", "n0d1"), devices(2, 4))
    there = tuple(replace(device, offered=device.node != "n0") for device in there)
    answer = decide(policy, snapshot([view], there, HOUR_US))
    assert (answer.resizes, answer.preempts) == ((), ())
    assert [wait.code for wait in answer.waits] == ["OutOfRange"]


@EVERY
def test_a_size_without_a_plan_is_told_as_such(policy: str) -> None:
    layers = len(GPT[0].layers)
    view, there = running(1, layers + 1, layers + 2, FOUR, devices(4, 4))
    answer = decide(policy, snapshot([view], there, HOUR_US))
    assert (answer.resizes, answer.preempts) == ((), ())
    assert "the model needs more layers" in answer.waits[0].text


@EVERY
def test_one_gives_up_what_another_gets_in_the_same_pass(policy: str) -> None:
    shrinks, there = running(1, 1, 1, ("n0d0", "n0d1", "n0d2"), devices(1, 4))
    grows, there = running(2, 3, 3, ("n0d3",), there)
    answer = decide(policy, snapshot([shrinks, grows], there, HOUR_US))
    found = {resize.job: set(resize.devices) for resize in answer.resizes}
    assert len(found[1]) == 1
    assert len(found[2]) == 3
    assert found[1] | found[2] == set(FOUR)


@EVERY
def test_within_its_range_nothing_is_done_about_it(policy: str) -> None:
    view, there = running(1, 2, 4, FOUR, devices(1, 4))
    assert decide(policy, snapshot([view], there, HOUR_US)).resizes == ()
