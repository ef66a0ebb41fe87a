from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from samples import job

from policies.jct.menu import build_menu
from policies.jct.priority import PriorityPolicy
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView
from policies.model.device import DeviceKind
from policies.registry import find, names

KINDS = ("cpu", "fast")


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """Devices of two kinds on up to four nodes; jobs that run, stop, are probed or wait."""
    devices = [
        DeviceView(f"n{n}d{d}", f"n{n}", KINDS[n % 2], draw(st.sampled_from([None, 500_000, 5_000])))
        for n in range(draw(st.integers(1, 4)))
        for d in range(draw(st.integers(1, 4)))
    ]
    jobs: list[JobView] = []
    for id_ in range(1, draw(st.integers(1, 7)) + 1):
        minimum = draw(st.integers(1, 4))
        view = job(
            id_,
            minimum,
            draw(st.integers(minimum, 6)),
            priority=draw(st.sampled_from([10, 50, 90])),
            steps=draw(st.sampled_from([1, 100, 100_000])),
            probed=draw(st.booleans()),
        )
        view = replace(
            view,
            device_kinds=draw(st.sampled_from([(), ("cpu",), ("fast", "cpu")])),
            avoid=draw(st.sampled_from([(), (), ("n0",), ("n1",)])),
        )
        free = [d for d in devices if d.holder is None]
        if draw(st.booleans()) and free:
            jobs.append(_running(draw, view, free, devices))
        else:
            jobs.append(view)
    return ClusterSnapshot(3, draw(st.sampled_from([10, 400_000_000])), tuple(devices), tuple(jobs))


def _running(draw: st.DrawFn, view: JobView, free: list[DeviceView], devices: list[DeviceView]) -> JobView:
    same = [d for d in free if d.kind == free[0].kind]
    held = same[: draw(st.integers(1, 4))] if view.menu.profiles else same[:1]
    for device in held:
        devices[devices.index(device)] = replace(device, holder=view.id)
    entry = build_menu(replace(view.menu, min_devices=1), (DeviceKind(same[0].kind),)).of(same[0].kind).get(len(held))
    return replace(
        view,
        state=draw(st.sampled_from([JobState.RUNNING, JobState.STOPPING])),
        devices=tuple(d.id for d in held),
        plan=entry.plan if entry else None,
        preemptible=draw(st.booleans()),
    )


@settings(max_examples=400, deadline=None)
@given(clusters())
def test_no_pass_breaks_the_rules(snapshot: ClusterSnapshot) -> None:
    answer = PriorityPolicy().decide(snapshot, 0)
    assert answer == PriorityPolicy().decide(snapshot, 0), "same snapshot, same answer"
    devices = {device.id: device for device in snapshot.devices}
    jobs = {view.id: view for view in snapshot.jobs}
    victims = {preempt.job: preempt.for_job for preempt in answer.preempts}

    given_ = Counter(device for start in answer.starts for device in start.devices)
    assert all(count == 1 for count in given_.values()), "no device is given twice"
    for start in answer.starts:
        view = jobs[start.job]
        assert view.pending
        if start.plan is None:
            assert len(start.devices) == 1
            assert not view.menu.profiles
        else:
            assert start.plan.world_size == len(start.devices), "gangs start whole"
            assert view.menu.min_devices <= len(start.devices) <= view.menu.max_devices
        assert len({devices[d].kind for d in start.devices}) == 1
        for device in (devices[d] for d in start.devices):
            assert device.promised is None
            free = device.holder is None or jobs[device.holder].state == JobState.STOPPING
            assert free or victims.get(device.holder) == start.job
            assert device.node not in view.avoid
            assert not view.device_kinds or device.kind in view.device_kinds

    assert len(victims) == len(answer.preempts), "nobody is preempted twice"
    starting = {start.job for start in answer.starts}
    for victim, winner in victims.items():
        assert jobs[victim].state == JobState.RUNNING
        assert jobs[victim].preemptible
        assert jobs[victim].priority < jobs[winner].priority
        assert winner in starting, "nobody is preempted in vain"

    waiting = Counter(wait.job for wait in answer.waits)
    assert all(waiting[view.id] + (view.id in starting) == 1 for view in snapshot.jobs if view.pending)
    assert all(wait.text and wait.code for wait in answer.waits)


def _is_wrong(view: JobView) -> bool:
    least, most = view.menu.min_devices, view.menu.max_devices
    return view.state == JobState.RUNNING and view.plan is not None and not least <= len(view.devices) <= most


@settings(max_examples=200, deadline=None)
@given(clusters(), st.sampled_from(names()))
def test_jobs_out_of_their_range_come_into_it_or_are_told_why(snapshot: ClusterSnapshot, policy: str) -> None:
    """Whatever else the policy decides in the same pass."""
    snapshot = replace(snapshot, jobs=tuple(replace(view, out_of_range=_is_wrong(view)) for view in snapshot.jobs))
    answer = find(policy).decide(snapshot, 1_000)
    assert answer == find(policy).decide(snapshot, 1_000), "same snapshot, same answer"
    devices = {device.id: device for device in snapshot.devices}
    jobs = {view.id: view for view in snapshot.jobs}
    moves = [*answer.resizes, *answer.starts]
    given_ = Counter(device for move in moves for device in move.devices)
    assert all(count == 1 for count in given_.values()), "no device is given twice"
    yielding = {preempt.job for preempt in answer.preempts} | {resize.job for resize in answer.resizes}
    for move in moves:
        for holder in {devices[id].holder for id in move.devices} - {None, move.job}:
            assert jobs[holder].state == JobState.STOPPING or holder in yielding
    told = {wait.job for wait in answer.waits}
    for view in snapshot.jobs:
        if view.out_of_range:
            found = [resize for resize in answer.resizes if resize.job == view.id]
            sizes = {len(resize.devices) for resize in found}
            inside = set(range(view.menu.min_devices, view.menu.max_devices + 1))
            assert sizes <= inside | {len(view.devices)}, "who goes on may go on elsewhere"
            assert bool(sizes & inside) != (view.id in told)
            for resize in found:
                assert len(resize.devices) == resize.plan.world_size
                assert len({devices[id].kind for id in resize.devices}) == 1
                assert not {devices[id].node for id in resize.devices} & set(view.avoid)
