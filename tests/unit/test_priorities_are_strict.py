"""Whatever orders jobs of one priority, none waits for jobs of lower priority that may be stopped."""

import pytest

from policies.jct.levels import Levels
from policies.jct.patience import Patience
from policies.jct.problem import Grant, JobDemand, NodeRoom, Option, Options, Problem
from policies.registry import ALLOCATORS, find_allocator

pytestmark = pytest.mark.parametrize("name", sorted(ALLOCATORS))

ELASTIC = Options(Option("gpu", n, 1 / n**0.8, 60.0, f"p{n}", (n,)) for n in (1, 2, 4))
FOUR = Options([Option("gpu", 4, 1.0, 60.0, "four", (4,))])
WIDE = Options([Option("gpu", 8, 1.0, 60.0, "wide")])
"""Fits no node of four."""


def running(id: str, node: str, size: int = 4, *, frozen: bool = False, steps: float = 1e5) -> JobDemand:
    option = next(option for option in ELASTIC if option.devices == size)
    return JobDemand(
        id, 1e4, ELASTIC, steps, 4e4, 0, 1e4, placement={node: size}, plan=option.plan, frozen=frozen, asked=size
    )


def ask(name: str, *jobs: JobDemand, free: tuple[int, ...] = (0, 0)) -> dict[str, Grant]:
    nodes = tuple(NodeRoom(f"n{number}", "gpu", 4, left) for number, left in enumerate(free))
    return {grant.id: grant for grant in find_allocator(name).allocate(Problem(0.0, nodes, jobs), 1000)}


def test_an_urgent_gang_takes_what_lower_jobs_have(name: str) -> None:
    urgent = JobDemand("urgent", 0.0, FOUR, 1e6, level=90)
    grants = ask(name, running("a", "n0"), running("b", "n1"), urgent)
    assert sum(grants["urgent"].placement.values()) == 4
    kept = [id for id in "ab" if id not in grants or grants[id].placement]
    assert kept, "one victim is enough"


def test_a_gang_wider_than_a_node_takes_room_on_several(name: str) -> None:
    grants = ask(name, running("a", "n0"), running("b", "n1"), JobDemand("wide", 0.0, WIDE, 10.0, level=90))
    assert grants["wide"].placement == {"n0": 4, "n1": 4}
    assert not grants["a"].placement
    assert not grants["b"].placement


def test_the_lowest_level_loses_first_and_what_may_not_be_stopped_never(name: str) -> None:
    middle, low = running("middle", "n0"), running("low", "n1")
    middle = JobDemand(**{slot: getattr(middle, slot) for slot in JobDemand.__slots__} | {"level": 60})
    urgent = JobDemand("urgent", 0.0, FOUR, 1e6, level=90)
    assert not ask(name, middle, low, urgent)["low"].placement
    assert "low" not in ask(name, middle, running("low", "n1", frozen=True), urgent)
    assert ask(name, running("a", "n0", frozen=True), running("b", "n1", frozen=True), urgent) == {}


def test_who_loses_a_place_may_get_another(name: str) -> None:
    urgent = JobDemand("urgent", 0.0, FOUR, 1e6, level=90)
    grants = ask(name, running("a", "n0", size=2), running("b", "n1", frozen=True), urgent, free=(2, 0))
    assert grants["urgent"].placement == {"n0": 4}
    assert grants["a"].placement == {}


def test_growth_and_long_starts_below_leave_what_a_waiting_job_needs(name: str) -> None:
    ending = running("ending", "n0", size=2, frozen=True, steps=100.0)
    waiting = JobDemand("waiting", 0.0, FOUR, 1e5, level=90)
    one = Options([Option("gpu", 1, 1.0, 0.0, "one", (1,))])
    brief, long = JobDemand("brief", 0.0, one, 10.0), JobDemand("long", 0.0, one, 1e6)
    grants = ask(name, ending, running("b", "n1", frozen=True), waiting, brief, long, free=(2, 0))
    assert set(grants) == {"brief"}, "it ends before the waiting job can start"


def test_a_job_on_its_probe_finds_its_minimum_free(name: str) -> None:
    probe = JobDemand("probe", 1.0, Options([Option("gpu", 1, 60.0, 0.0, None)]), 1.0, placement={"n0": 1},
                      frozen=True, level=90, expects=3)  # fmt: skip
    small = JobDemand("small", 0.0, ELASTIC, 1e3)
    assert ask(name, probe, running("b", "n1", frozen=True), small, free=(3, 0)) == {}


def test_a_job_that_waited_for_too_long_counts_as_of_the_highest_priority(name: str) -> None:
    patience = Patience(seconds=3_600.0)
    old = JobDemand("old", 1e7, FOUR, 100.0)
    urgent = JobDemand("urgent", 0.0, FOUR, 100.0, level=90)
    nodes = (NodeRoom("n0", "gpu", 4, 4),)
    levels = Levels(ALLOCATORS[name](), patience)
    (grant,) = levels.allocate(Problem(0.0, nodes, (urgent, old)), 1000)
    if name in ("jct", "fifo", "las", "slope"):
        assert grant.id == "old", "and it is the oldest of them"
