"""A queue's own policy hands out what the cluster's policy gave the queue's jobs, device for device and within caps."""

from dataclasses import replace

from policies.jct.problem import Grant, JobDemand, NodeRoom, Option, Options, Placement, Problem
from policies.jct.queues import Queues

MENU = Options([Option("gpu", 2, 1.0, 0.0, "p")])


class Says:
    """An allocator that gives what it is told."""

    def __init__(self, **grants: Placement) -> None:
        self.grants = tuple(Grant(id, placement, "p") for id, placement in grants.items())

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        return self.grants


def job(id: str, *holders: str, queue: str = "own") -> JobDemand:
    return JobDemand(id, 0.0, MENU, 10.0, queue=queue, holders=holders)


def decide(cluster: Says, own: Says, *jobs: JobDemand, free: int = 4, **caps: int) -> dict[str, Placement]:
    nodes = tuple(NodeRoom(f"n{n}", "gpu", 8, free) for n in range(2))
    problem = Problem(0.0, nodes, jobs, caps=caps, policies={"own": "says"})
    return {grant.id: grant.placement for grant in Queues(cluster, lambda _: own).allocate(problem, 1)}


def test_what_is_left_over_is_counted_node_by_node_over_all_grants() -> None:
    pair = {"n0": 1, "n1": 1}
    found = decide(Says(a=pair, b=pair), Says(c=pair, d={"n0": 1}), job("a"), job("b"), job("c"), job("d"))
    assert found == {"c": pair, "d": {"n0": 1}}, "nothing of n0 is left for the others"


def test_what_is_left_over_goes_to_whom_caps_let_have_it() -> None:
    two = {"n0": 2}
    found = decide(Says(a=two, b=two), Says(c=two), job("a", "t"), job("b"), job("c", "t"), t=2)
    assert found == {"c": two, "b": two}


def test_a_job_that_gave_way_under_a_cap_does_not_keep_its_place_in_the_room_of_others() -> None:
    runs = replace(job("a", "t"), placement={"n0": 2}, plan="p")
    outside, other = job("x", "t", queue=""), job("b")
    found = decide(Says(a={}, x={"n1": 2}, b={"n0": 2}), Says(), runs, outside, other, t=2)
    assert found == {"a": {}, "x": {"n1": 2}, "b": {"n0": 2}}
