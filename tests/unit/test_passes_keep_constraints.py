"""What people and machines forbid or prefer is kept by every allocator, within one pass."""

from dataclasses import replace

import pytest
from samples import gpt_profile, job, request, snapshot

from policies.ir.plan import ParallelPlan, StagePlan
from policies.jct.demands import Demands, fair_share
from policies.jct.menu import build_menu
from policies.jct.placement import near
from policies.model.cluster import (
    ClusterSnapshot,
    DeviceView,
    JobState,
    JobView,
    Observed,
    QueueView,
    TeamView,
    UserView,
)
from policies.model.decision import Decisions
from policies.model.device import DeviceKind
from policies.model.profile import LayerProfile, ModelProfile
from policies.registry import ALLOCATORS, find

EVERY = pytest.mark.parametrize("policy", sorted(ALLOCATORS))
PRIORITY_TOO = pytest.mark.parametrize("policy", [*sorted(ALLOCATORS), "priority"])
US = 1_000_000
HOUR_US = 3_600 * US


def nodes(count: int = 2, each: int = 4, **more: object) -> tuple[DeviceView, ...]:
    return tuple(
        DeviceView(f"n{n}d{d}", f"n{n}", "cpu", None, **more)
        for n in range(count) for d in range(each)
    )  # fmt: skip


def decide(policy: str, snap: ClusterSnapshot) -> Decisions:
    return find(policy).decide(snap, 6_000)


def started(answer: Decisions) -> dict[int, tuple[str, ...]]:
    return {start.job: start.devices for start in answer.starts}


def running(
    view: JobView, held: tuple[str, ...], devices: tuple[DeviceView, ...], **more: object
) -> tuple[JobView, tuple[DeviceView, ...]]:
    plan = build_menu(view.menu, (DeviceKind("cpu"),)).of("cpu")[len(held)].plan
    facts = {"state": JobState.RUNNING, "devices": held, "plan": plan, "preemptible": True, **more}
    view = replace(view, **facts)
    return view, tuple(replace(d, holder=view.id) if d.id in held else d for d in devices)


@EVERY
def test_drained_devices_get_nothing_new(policy: str) -> None:
    devices = tuple(replace(d, offered=d.node != "n0") for d in nodes())
    found = started(decide(policy, snapshot([job(1), job(2)], devices)))
    assert found
    assert all(id.startswith("n1") for ids in found.values() for id in ids)


@EVERY
def test_who_runs_on_a_drained_device_is_left_alone(policy: str) -> None:
    view, devices = running(job(1, steps=10**6), ("n0d0",), nodes(1))
    devices = tuple(replace(d, offered=d.id != "n0d0") for d in devices)
    answer = decide(policy, snapshot([view, job(2, 4, priority=90)], devices, HOUR_US))
    assert (answer.preempts, answer.resizes) == ((), ())


@EVERY
def test_reserved_devices_are_for_their_team_alone(policy: str) -> None:
    devices = nodes(1, 4, reserved_for="vision")
    assert started(decide(policy, snapshot([job(1)], devices))) == {}
    assert started(decide(policy, snapshot([replace(job(1), team="vision")], devices)))


@EVERY
@pytest.mark.parametrize("capped", ["teams", "users", "queues"])
def test_b36_a_cap_holds_for_all_jobs_of_one_pass_together(policy: str, capped: str) -> None:
    view = {"teams": TeamView("team", 1.0, 3), "users": UserView("eva", 3), "queues": QueueView("default", "", 3)}
    jobs = [replace(job(n, 1, 2), user="eva") for n in range(1, 11)]
    snap = replace(snapshot(jobs, nodes(4)), **{capped: (view[capped],)})
    given = started(decide(policy, snap))
    assert 1 <= sum(map(len, given.values())) <= 3


@EVERY
def test_a_cap_does_not_keep_an_urgent_job_from_its_own_teams_devices(policy: str) -> None:
    low, devices = running(job(1, 4, 4), ("n0d0", "n0d1", "n0d2", "n0d3"), nodes())
    urgent = job(2, 4, 4, priority=90)
    snap = replace(snapshot([low, urgent], devices, HOUR_US), teams=(TeamView("team", 1.0, 4),))
    answer = decide(policy, snap)
    assert set(started(answer)[2]) == set(low.devices), "a device counts once, so it takes the very same"
    assert [preempt.job for preempt in answer.preempts] == [1]


@PRIORITY_TOO
def test_what_is_guaranteed_is_not_preempted(policy: str) -> None:
    sla, devices = running(job(1, 2, 4), ("n0d0", "n0d1"), nodes(1, 2), guaranteed=2)
    answer = decide(policy, snapshot([sla, job(2, 2, priority=90)], devices, HOUR_US))
    assert (answer.preempts, answer.resizes) == ((), ())


@EVERY
def test_what_is_beyond_the_guarantee_is_given_up(policy: str) -> None:
    sla, devices = running(job(1, 2, 4), ("n0d0", "n0d1", "n0d2", "n0d3"), nodes(1), guaranteed=2)
    answer = decide(policy, snapshot([sla, job(2, 2, 2, priority=90)], devices, HOUR_US))
    assert [len(resize.devices) for resize in answer.resizes] == [2]
    assert len(started(answer)[2]) == 2


@PRIORITY_TOO
def test_after_so_many_preemptions_a_job_is_shielded(policy: str) -> None:
    low, devices = running(job(1, 2, 2), ("n0d0", "n0d1"), nodes(1, 2), max_preemptions=3, preemptions=3)
    urgent = job(2, 2, 2, priority=90)
    assert decide(policy, snapshot([low, urgent], devices, HOUR_US)).preempts == ()
    again = replace(low, preemptions=2)
    assert decide(policy, snapshot([again, urgent], devices, HOUR_US)).preempts


@pytest.mark.parametrize("policy", ["jct", "fifo", "srtf", "slope"])
def test_a_team_that_has_used_less_than_its_share_goes_first(policy: str) -> None:
    jobs = [replace(job(n, 2, 2), team=team, submitted_us=0) for n, team in ((1, "greedy"), (2, "modest"))]
    teams = (TeamView("greedy", share_used=3.0), TeamView("modest", share_used=0.2))
    snap = replace(snapshot(jobs, nodes(1, 2), HOUR_US), teams=teams)
    assert set(started(decide(policy, snap))) == {2}
    assert set(started(decide(policy, replace(snap, teams=tuple(
        replace(team, share_used=3.2 - team.share_used) for team in teams))))) == {1}  # fmt: skip


def test_fair_share_only_orders_jobs_of_one_priority() -> None:
    jobs = [replace(job(1, 2, 2, priority=60), team="greedy"), replace(job(2, 2, 2), team="modest")]
    teams = (TeamView("greedy", share_used=9.0), TeamView("modest", share_used=0.0))
    assert set(started(decide("jct", replace(snapshot(jobs, nodes(1, 2)), teams=teams)))) == {1}
    assert fair_share(None) == fair_share(TeamView("even", share_used=1.0)) == 1.0


@EVERY
def test_a_gang_over_several_nodes_stays_below_one_switch(policy: str) -> None:
    switches = ("left", "right", "left", "right")
    devices = tuple(replace(d, switch=switches[int(d.node[1])]) for d in nodes(4, 2))
    found = started(decide(policy, snapshot([job(1, 4, 4)], devices)))[1]
    assert len({device.switch for device in devices if device.id in found}) == 1


@EVERY
def test_slowed_devices_come_last(policy: str) -> None:
    devices = tuple(replace(d, slowdown=2.0 if d.node == "n0" else 1.0) for d in nodes())
    assert all(id.startswith("n1") for id in started(decide(policy, snapshot([job(1, 2, 2)], devices)))[1])
    mixed = tuple(replace(d, slowdown=2.0 if d.id < "n0d2" else 1.0) for d in nodes(1))
    assert set(started(decide(policy, snapshot([job(1, 2, 2)], mixed)))[1]) == {"n0d2", "n0d3"}


def test_a_job_leaves_slowed_devices_for_calm_ones_of_the_same_node() -> None:
    """And once: where its devices are as calm as others it keeps them."""
    slowed = tuple(replace(d, slowdown=3.0 if d.id < "n0d2" else 1.0) for d in nodes(1))
    view, devices = running(job(1, 2, 2, steps=10**7), ("n0d0", "n0d1"), slowed)
    [resize] = decide("jct", snapshot([view], devices, HOUR_US)).resizes
    assert set(resize.devices) == {"n0d2", "n0d3"}
    view, devices = running(job(1, 2, 2, steps=10**7), ("n0d2", "n0d3"), slowed)
    assert decide("jct", snapshot([view], devices, HOUR_US)).resizes == ()


def test_two_jobs_do_not_flee_to_the_same_calm_devices() -> None:
    slowed = tuple(replace(d, slowdown=3.0 if d.id < "n0d4" else 1.0) for d in nodes(1, 6))
    first, devices = running(job(1, 2, 2, steps=10**7), ("n0d0", "n0d1"), slowed)
    second, devices = running(job(2, 2, 2, steps=10**7), ("n0d2", "n0d3"), devices)
    [resize] = decide("jct", snapshot([first, second], devices, HOUR_US)).resizes
    assert set(resize.devices) == {"n0d4", "n0d5"}


@pytest.mark.parametrize("policy", ["jct", "slope"])
def test_a_policy_asks_to_be_asked_again_when_a_job_that_it_left_alone_may_be_changed(policy: str) -> None:
    """Here the one that waits finds no room before: nothing else would bring a pass at that moment."""
    view, devices = running(job(1, 1, 4, steps=10**7), ("n0d0", "n0d1", "n0d2", "n0d3"), nodes(1))
    young = [replace(view, changed_us=HOUR_US - US), job(2, 2, 2)]
    answer = decide(policy, snapshot(young, devices, HOUR_US))
    assert not answer.starts
    assert answer.again_in_s is not None
    later = HOUR_US + round(answer.again_in_s * US)
    assert not decide(policy, snapshot(young, devices, later - 1000)).starts
    assert decide(policy, snapshot(young, devices, later + 1000)).starts
    settled = [replace(view, changed_us=0)]
    assert decide(policy, snapshot(settled, devices, HOUR_US)).again_in_s is None


def test_a_training_without_checkpoints_is_not_stopped_for_what_is_worth_less_than_its_work() -> None:
    """Paused it would begin anew; what changes its shape while it trains loses nothing."""
    view, devices = running(job(1, 1, 4, steps=10**7), ("n0d0", "n0d1", "n0d2", "n0d3"), nodes(1))
    waiting = job(2, 2, 2)

    def decided(**more: object) -> Decisions:
        return decide("jct", snapshot([replace(view, **more), waiting], devices, HOUR_US))

    assert decided().preempts
    assert not decided(lost_s=1e8).starts
    live = decided(lost_s=1e8, live=True)
    assert [len(resize.devices) for resize in live.resizes] == [2]
    assert started(live)[2]
    grown = snapshot([replace(view, devices=("n0d0",), plan=_alone(view))], _held_by(1, ("n0d0",)), HOUR_US)
    assert decide("jct", grown).resizes
    at_a_loss = replace(grown, jobs=(replace(grown.jobs[0], lost_s=1e8),))
    assert not decide("jct", at_a_loss).resizes


def _alone(view: JobView) -> ParallelPlan:
    return build_menu(view.menu, (DeviceKind("cpu"),)).of("cpu")[1].plan


def _held_by(id: int, held: tuple[str, ...]) -> tuple[DeviceView, ...]:
    return tuple(replace(device, holder=id) if device.id in held else device for device in nodes(1))


def test_heavy_boundaries_do_not_cross_nodes() -> None:
    sizes = (9_000, 9_000, 10, 9_000, 0)
    layers = tuple(LayerProfile(str(n), 1.0, 1.0, 1.0, size, 0, 0) for n, size in enumerate(sizes))
    plan = ParallelPlan(tuple(StagePlan(n, n + 1, (n,), (4,)) for n in range(5)), 4, 1)
    devices = [*nodes(1, 2), *(replace(d, id=f"m{d.id}", node="m") for d in nodes(1, 3))]
    laid = near(devices, plan, ModelProfile("m", 1, "cpu", layers))
    assert [device.node for device in laid] == ["m", "m", "m", "n0", "n0"]


def test_a_menu_is_corrected_by_what_the_job_has_shown() -> None:
    view, devices = running(job(1), ("n0d0", "n0d1"), nodes())
    assert view.plan is not None

    def steps(seen: JobView) -> dict[int, float]:
        return {option.devices: option.step_time_s for option in Demands(snapshot([seen], devices)).demand(seen).menu}

    predicted = steps(view)
    slow = replace(view, observed=(Observed("cpu", 2, view.plan, 2.0 * predicted[2]),))
    assert steps(slow) == {size: pytest.approx(2.0 * seconds, rel=0.03) for size, seconds in predicted.items()}
    even = replace(view, observed=(Observed("cpu", 2, view.plan, 1.01 * predicted[2]),))
    assert steps(even) == predicted, "a little noise changes nothing"


def test_a_live_change_of_replicas_costs_less_than_one_of_stages_and_that_less_than_a_restart() -> None:
    heavy = tuple(replace(layer, parameter_bytes=10**9) for layer in gpt_profile().layers)
    profile = replace(gpt_profile(), layers=heavy)
    kind = (DeviceKind("cpu"),)
    both = {
        replicas: build_menu(replace(request(1, 4, profiles=(profile,)), replicas=replicas, stages=(2,)), kind)
        for replicas in (1, 2)
    }
    now = both[1].of("cpu")[2].plan
    twice = both[2].of("cpu")[4].plan
    from policies.jct.offers import _planned

    alone = build_menu(request(1, 4, profiles=(profile,)), kind)
    stages = {option.devices: option.restart_s for option in _planned(alone, now)}
    replicas = {option.plan: option.restart_s for option in _planned(both[2], now)}[twice]
    restart = {option.devices: option.restart_s for option in _planned(alone, None)}
    assert replicas < stages[4] < restart[4]


def test_a_queue_with_a_policy_of_its_own_orders_its_jobs_by_it() -> None:
    long = replace(job(1, 2, 2, steps=10**6), submitted_us=0)
    short = replace(job(2, 2, 2, steps=10), submitted_us=10)
    snap = snapshot([long, short], nodes(1, 2), HOUR_US)
    assert set(started(decide("jct", snap))) == {2}
    assert set(started(decide("jct", replace(snap, queues=(QueueView("default", "fifo"),))))) == {1}


def test_a_queues_policy_gives_nothing_to_other_queues() -> None:
    jobs = [replace(job(n, 2, 2, steps=100 * n), queue="own" if n < 3 else "default") for n in range(1, 5)]
    snap = snapshot(jobs, nodes(2, 2), HOUR_US)
    plain = started(decide("fifo", snap))
    own = started(decide("fifo", replace(snap, queues=(QueueView("own", "srtf"),))))
    assert set(plain) == set(own) == {1, 2}


def grows_to(most: int, **more: object) -> JobView:
    """A long job that is nearly as much faster on as many more devices."""
    profiles = tuple(gpt_profile(size, blocks=64) for size in (1, 4))
    return replace(job(1, 1, most, steps=10**6), menu=request(1, most, 256, profiles), **more)


@EVERY
@pytest.mark.parametrize("preferred", [None, 64])
def test_nobody_waits_for_more_devices_than_the_cluster_has(policy: str, preferred: int | None) -> None:
    assert started(decide(policy, snapshot([grows_to(64, preferred=preferred)], nodes(1, 2))))


@EVERY
def test_nobody_waits_for_devices_that_are_reserved_for_others(policy: str) -> None:
    devices = tuple(replace(d, reserved_for="vision" if d.node != "n0" else "") for d in nodes(8, 2))
    found = started(decide(policy, snapshot([grows_to(16, preferred=16)], devices)))
    assert all(id.startswith("n0") for id in found[1])


@PRIORITY_TOO
@pytest.mark.parametrize("probed", [True, False])
def test_b43_the_reason_speaks_of_devices_that_the_job_may_use(policy: str, probed: bool) -> None:
    calm = tuple(replace(d, id=f"a{d.id}", node="a", kind="a100") for d in nodes(1))
    busy = tuple(replace(d, kind="v100", holder=9) for d in nodes(1, 2))
    holder = replace(job(9, 2, 2), state=JobState.RUNNING, devices=tuple(d.id for d in busy))
    waiting = replace(job(1, probed=probed), device_kinds=("v100",))
    [wait] = decide(policy, snapshot([holder, waiting], calm + busy)).waits
    assert (wait.code, wait.text) == ("Resources", "It needs 1 of 2 v100 devices; none is free.")


@EVERY
def test_b43_of_several_kinds_the_reason_is_that_of_the_nearest(policy: str) -> None:
    busy = tuple(replace(d, id=f"a{d.id}", node="a", kind="a100", holder=9) for d in nodes(1))
    some = tuple(replace(d, kind="v100", holder=None if d.id == "n0d0" else 8) for d in nodes(1))
    holders = [replace(job(8 + (d is busy), 3, 4), state=JobState.RUNNING, devices=tuple(x.id for x in d if x.holder))
               for d in (some, busy)]  # fmt: skip
    [wait] = decide(policy, snapshot([*holders, job(1, 2)], busy + some)).waits
    assert (wait.code, "v100" in wait.text) == ("GangPartial", True)
