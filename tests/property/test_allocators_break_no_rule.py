"""Whatever the cluster and its jobs look like, every allocator's answer can be carried out as it stands."""

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from policies.jct.problem import Grant, JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.rooms import Rooms, arrangements
from policies.registry import ALLOCATORS, find_allocator

SHAPES = ((1,), (2,), (3,), (4,), (1, 1), (1, 3), (2, 2), (4, 4), (1, 1, 2), (4, 4, 4), (2, 1, 3))
SPREAD = (2, 5)


@st.composite
def menus(draw: st.DrawFn) -> Options:
    kinds = draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=2, unique=True))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5, unique=True))
    rows = [
        Option(kind, sum(shape), draw(st.floats(0.1, 50.0)), draw(st.sampled_from((0.0, 30.0))), f"p{n}", shape)
        for kind in kinds
        for n, shape in enumerate(shapes)
    ]
    if draw(st.booleans()):
        rows += [Option(kinds[0], count, draw(st.floats(0.1, 50.0)), 10.0, f"any{count}") for count in SPREAD]
    return Options(rows)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    nodes = tuple(
        NodeRoom(f"n{i}", draw(st.sampled_from("ab")), 4, 4, draw(st.sampled_from(("", "s", "t"))),
                 draw(st.sampled_from((1.0, 1.0, 2.0))))
        for i in range(draw(st.integers(1, 5)))
    )  # fmt: skip
    rooms = Rooms(nodes)
    jobs = []
    for number in range(draw(st.integers(0, 8))):
        menu = draw(menus())
        age = draw(st.floats(0, 1e6))
        job = JobDemand(
            f"j{number}", age, menu, draw(st.one_of(st.none(), st.floats(0, 1e5))),
            attained_gpu_s=draw(st.floats(0, 1e6)), restarts=draw(st.integers(0, 9)),
            since_change_s=draw(st.floats(0, 1)) * age, weight=draw(st.sampled_from((0.1, 1.0, 8.0))),
            max_devices=draw(st.sampled_from((2, 12))), asked=draw(st.sampled_from((None, 1, 4))),
            level=draw(st.sampled_from((0, 0, 7, 9))), holders=draw(st.sampled_from(((), ("t",), ("t", "u")))),
            avoid=draw(st.sampled_from(((), ("n0",)))),
            queue=draw(st.sampled_from(("", "", "own"))), expects=draw(st.sampled_from((0, 0, 2))),
        )  # fmt: skip
        option = draw(st.sampled_from(menu))
        if draw(st.booleans()) and option.devices <= job.max_devices and (placement := rooms.find(option)):
            rooms.take(placement)
            held = {"placement": placement, "plan": option.plan, "frozen": draw(st.booleans())}
            if shield := draw(st.sampled_from((0, 0, 1))) and draw(st.integers(1, option.devices)):
                held |= {"shield": shield, "min_devices": shield}
            job = JobDemand(**{name: getattr(job, name) for name in JobDemand.__slots__} | held)
        jobs.append(job)
    room = tuple(replace(node, free=rooms.free(node.id)) for node in nodes)
    caps = {holder: draw(st.integers(0, 8)) for holder in draw(st.sampled_from(((), ("t",), ("t", "u"))))}
    policies = {"own": policy} if (policy := draw(st.sampled_from(("", *ALLOCATORS)))) else {}
    return Problem(1e6, room, tuple(jobs), caps=caps, policies=policies)


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@given(problem=problems(), effort=st.sampled_from((0, 10, 5000)))
@settings(deadline=None, max_examples=150)
def test_an_answer_can_be_carried_out(name: str, problem: Problem, effort: int) -> None:
    grants = find_allocator(name).allocate(problem, effort)
    assert grants == find_allocator(name).allocate(problem, effort), "the same question has the same answer"
    jobs = {job.id: job for job in problem.jobs}
    assert len({grant.id for grant in grants}) == len(grants)
    free = Counter({node.id: node.free for node in problem.nodes})
    for grant in grants:
        assert not jobs[grant.id].frozen
        free.update(jobs[grant.id].placement)
    for grant in grants:
        free.subtract(grant.placement)
        _check_whole(problem, jobs[grant.id], grant)
    assert min(free.values()) >= 0, "no device is given twice"
    after = {id: sum(job.placement.values()) for id, job in jobs.items()} | {
        grant.id: sum(grant.placement.values()) for grant in grants
    }
    for holder, cap in problem.caps.items():
        before = sum(job.devices for job in problem.jobs if holder in job.holders)
        now = sum(after[job.id] for job in problem.jobs if holder in job.holders)
        assert now <= max(cap, before), "together they stay within their cap, or at least add nothing beyond it"
    for job in problem.jobs:
        assert after[job.id] >= min(job.shield, job.devices), "what is guaranteed is never taken"


def _check_whole(problem: Problem, job: JobDemand, grant: Grant) -> None:
    """A gang gets exactly one row of its menu, on nodes of one kind, within its bounds."""
    if not grant.placement:
        assert job.placement, "nothing is taken from a job that has nothing"
        return
    assert grant.placement == job.placement or not set(grant.placement) & set(job.avoid)
    order = [node.id for node in problem.nodes]
    kinds = {node.id: node.kind for node in problem.nodes}
    shape = tuple(grant.placement[node] for node in sorted(grant.placement, key=order.index))
    assert job.min_devices <= sum(shape) <= job.max_devices
    assert any(
        option.plan == grant.plan
        and {kinds[node] for node in grant.placement} == {option.kind}
        and (shape in arrangements(option.per_node) if option.per_node else sum(shape) == option.devices)
        for option in job.menu
    )
