"""Policies may come from elsewhere: whatever one answers, the core takes what holds, and its invariants stay."""

import math

from core_machine import CoreMachine
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions, Preempt, Resize, Start, Wait
from scheduler.core.invariants import violations

IDS = st.integers(1, 6)
DEVICES = st.sampled_from(("n0-0", "n0-1", "n1-0", "n1-1", "n9-9"))
GANGS = st.lists(DEVICES, max_size=4).map(tuple)
SECONDS = st.none() | st.sampled_from((0.0, 5.0, -1.0, 1e300, math.inf, -math.inf, math.nan))


def plan(ranks: int, size: int = 1) -> ParallelPlan:
    stages = tuple(StagePlan(n, n + 1, (n,), (size,)) for n in range(ranks))
    return ParallelPlan(stages, 8 // size, size)


PLANS = st.builds(plan, st.integers(0, 4), st.sampled_from((1, 2)))
ANSWERS = st.builds(
    Decisions,
    version=st.integers(-1, 1000),
    starts=st.lists(st.builds(Start, IDS, GANGS, st.none() | PLANS, SECONDS), max_size=4).map(tuple),
    preempts=st.lists(st.builds(Preempt, IDS, IDS), max_size=3).map(tuple),
    waits=st.lists(st.builds(Wait, IDS, st.text(max_size=9), st.text(max_size=9), SECONDS), max_size=3).map(tuple),
    resizes=st.lists(st.builds(Resize, IDS, GANGS, PLANS, SECONDS), max_size=3).map(tuple),
    again_in_s=SECONDS,
)


class Answering:
    """Says what it was given, one answer a pass, and then nothing."""

    def __init__(self, answers: list[Decisions]) -> None:
        self.answers = list(answers)

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        return self.answers.pop() if self.answers else Decisions(snapshot.version)


@settings(max_examples=300, deadline=None)
@example([Decisions(1, starts=(Start(1, ("n0-0",), None), Start(1, ("n0-1",), None)))], 0)
@given(st.lists(ANSWERS, min_size=1, max_size=6), st.sampled_from((0, 1, 8)))
def test_nonsense_breaks_nothing(answers: list[Decisions], sane_passes: int) -> None:
    """Whether jobs run by then, are about to, or all wait."""
    machine = CoreMachine()
    for low, steps in ((1, 1000), (1, 10), (1, 1000), (2, 10), (4, 1000)):
        machine.submit(low=low, more=1, priority=50, steps=steps, preemptible=True, saves=False)
    for _ in range(sane_passes):
        machine.pass_time(seconds=1.0, lost=())
    machine.policy = Answering(answers)
    for _ in answers:
        machine.state.plan_wanted = True
        machine.pass_time(seconds=0.3, lost=())
        assert violations(machine.state) == []
