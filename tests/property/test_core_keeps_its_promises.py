"""The core under random events, with agents that restart, reboot and fall silent and a wire that loses messages."""

import math
from collections.abc import Sequence
from random import Random

import hypothesis.strategies as st
from core_machine import CoreMachine
from how_many import examples
from hypothesis import settings
from hypothesis.stateful import invariant, rule
from live_gangs import Gang, LiveAgent

from policies.jct.allocating import AllocatingPolicy
from policies.jct.joint import Joint
from policies.jct.policy import Policy
from policies.jct.problem import Grant, Option, Problem
from policies.jct.ranges import InRange
from policies.jct.rooms import Rooms
from policies.jct.work import Work
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions
from scheduler.protocol.messages import DeviceInfo
from scheduler.simulator.agent import SimulatedAgent


class Restless:
    """Moves, resizes and pauses jobs for no reason; it only never gives a device twice."""

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms, grants = Rooms(problem.nodes), []
        for job in problem.jobs:
            chance = Random(f"{problem.now_s} {job.id}")
            if job.frozen or (job.placement and chance.random() < 0.5):
                continue
            rooms.give(job.placement)
            option = chance.choice(job.menu) if job.menu else None
            placement = rooms.find(option, job) if option is not None and chance.random() < 0.9 else {}
            rooms.take(placement)
            if placement or job.placement:
                grants.append(Grant(job.id, placement, option.plan if option is not None and placement else None))
        return tuple(grants)

    def settles_in_s(self, problem: Problem) -> float:
        return math.inf

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        return [(work, work.options) for work in waiting]


class RestlessMachine(CoreMachine):
    """The same promises while jobs are resized all the time."""

    def make_policy(self) -> Policy:
        return InRange(Calming(self, AllocatingPolicy(Restless()), AllocatingPolicy(Joint())))

    @invariant()
    def no_device_is_kept_for_two(self) -> None:
        kept = [device for start, _ in self.state.resizing.values() for device in start.devices]
        assert len(kept) == len(set(kept))
        assert all(self.state.open_attempt(job) is not None for job in self.state.resizing)


class LiveMachine(RestlessMachine):
    """The same promises while jobs change their shape as they train, and some of these changes are dropped."""

    def __init__(self) -> None:
        self.gangs: dict[tuple[int, int], Gang] = {}
        super().__init__()

    def make_agent(self, node: str, devices: tuple[DeviceInfo, ...]) -> SimulatedAgent:
        return LiveAgent(node=node, devices=devices, gangs=self.gangs)

    @rule(half_seconds=st.integers(1, 12), lost=st.sampled_from(((), (), ("n0",))))
    def go_on_for_a_while(self, half_seconds: int, lost: tuple[str, ...]) -> None:
        """Passes without need, so that running jobs are moved about."""
        for _ in range(half_seconds):
            self.state.plan_wanted = True
            self.pass_time(0.5, lost)

    @invariant()
    def what_runs_is_what_is_written_down(self) -> None:
        for (job, number), gang in self.gangs.items():
            attempt = self.state.open_attempt(job)
            active = self.state.generation_of(job, number)
            if gang.begun_s is None or not gang.alive or attempt is None or attempt.number != number:
                continue
            proposed = self.state.proposed(job, number)
            known = [one.number for one in (active, proposed) if one is not None]
            assert gang.generation in known or self.state.stops_to_change.get(job) == number


class Calming:
    """Restless while the test runs; sensible at its end, so that jobs can end."""

    def __init__(self, machine: CoreMachine, restless: Policy, sensible: Policy) -> None:
        self.machine, self.restless, self.sensible = machine, restless, sensible

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        return (self.sensible if self.machine.ending else self.restless).decide(snapshot, effort)


CoreMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestCore = CoreMachine.TestCase
RestlessMachine.TestCase.settings = CoreMachine.TestCase.settings
TestCoreThatResizes = RestlessMachine.TestCase
LiveMachine.TestCase.settings = CoreMachine.TestCase.settings
TestCoreThatChangesLive = LiveMachine.TestCase
