"""From whatever state a cluster has got into, it can be run ahead: the core keeps its promises there too, and the state
that was forked stays as it was."""

import copy
from dataclasses import replace

from core_machine import CoreMachine
from hypothesis import settings
from hypothesis.stateful import rule
from hypothesis.strategies import integers
from test_core_keeps_its_promises import LiveMachine, RestlessMachine

from policies.model.cluster import ClusterSnapshot
from policies.registry import find
from scheduler.core.entities import JobState
from scheduler.core.invariants import violations
from scheduler.core.snapshot import take_snapshot
from scheduler.core.state import State
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Pace, begin_ahead


class _Looking:
    """Looks ahead now and then."""

    @rule(seed=integers(0, 3))
    def look_ahead(self, seed: int) -> None:
        before = copy.deepcopy(self.state)
        fork = forks.decode(forks.encode(forks.take(self.state, self.now)))
        assert _seen(fork.state, self.now) == _seen(before, self.now), "a policy sees the same cluster"
        living = [job.id for job in fork.state.jobs.values() if job.state is not JobState.DONE]
        ahead = begin_ahead(fork, find("priority"), seed, Pace(passes=15, periodic_s=5.0))
        fates = ahead.run(lambda: False)
        assert sorted(fate.job for fate in fates) == sorted(living)
        assert violations(fork.state) == []
        for fate in fates:
            assert fate.end_us is None or self.now <= fate.end_us
            assert fate.start_us is None or self.now <= fate.start_us <= fate.until_us
        assert self.state == before


def _seen(state: State, now: int) -> ClusterSnapshot:
    """But for live changes: virtual agents make none."""
    seen = take_snapshot(copy.deepcopy(state), now)
    return replace(seen, jobs=tuple(replace(job, live=False) for job in seen.jobs))


class LookingMachine(_Looking, CoreMachine):
    pass


class LookingRestlessMachine(_Looking, RestlessMachine):
    pass


class LookingLiveMachine(_Looking, LiveMachine):
    pass


for machine in (LookingMachine, LookingRestlessMachine, LookingLiveMachine):
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLooking = LookingMachine.TestCase
TestLookingWhileItResizes = LookingRestlessMachine.TestCase
TestLookingWhileItChangesLive = LookingLiveMachine.TestCase
