"""Caps of teams, users and queues, drains, reservations, arrays and dependencies, under everything that can happen.

The machine is that of `core_machine`, whose invariants include those of the caps.
"""

import hypothesis.strategies as st
from core_machine import NODES, CoreMachine
from how_many import examples
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from scheduler.core.entities import JobState
from scheduler.core.events import Change, Erase, Order, Submit, Verb, Write
from scheduler.core.records import Queue, Reservation, Team, User
from scheduler.core.settings import US
from scheduler.protocol.spec import CheckpointSpec, JobSpec

TEAMS, USERS = ("a", "b"), ("eva", "rob")
CAP = st.one_of(st.none(), st.integers(0, 4))
WHICH = st.integers(1, 12)


class TenantsMachine(CoreMachine):
    """Two teams of two users with caps that change, and admins who drain, reserve and order about."""

    @rule(team=st.sampled_from(TEAMS), devices=CAP, running=CAP, pending=st.one_of(st.none(), st.integers(0, 8)))
    def cap_team(self, team: str, devices: int | None, running: int | None, pending: int | None) -> None:
        record = Team(name=team, max_devices=devices, max_running=running, max_pending=pending)
        self._ask(lambda n: Write(request=n, actor="admin", record=record))

    @rule(user=st.sampled_from(USERS), devices=CAP)
    def cap_user(self, user: str, devices: int | None) -> None:
        self._ask(lambda n: Write(request=n, actor="admin", record=User(name=user, max_devices=devices)))

    @rule(paused=st.booleans(), running=CAP)
    def change_queue(self, paused: bool, running: int | None) -> None:
        record = Queue(name="default", paused=paused, max_running=running)
        self._ask(lambda n: Write(request=n, actor="admin", record=record))

    @rule(
        team=st.sampled_from(TEAMS), user=st.sampled_from(USERS), low=st.integers(1, 3), more=st.integers(0, 3),
        steps=st.integers(1, 60), tasks=st.sampled_from(((), (0, 1, 2))), most=st.sampled_from((None, 1)),
        parent=st.one_of(st.none(), WHICH), how=st.sampled_from(("ok", "any")),
        limit_s=st.sampled_from((None, 1.0, 30.0)), begin_s=st.sampled_from((0, 0, 7)), saves=st.booleans(),
    )  # fmt: skip
    def submit_as(
        self, team: str, user: str, low: int, more: int, steps: int, tasks: tuple[int, ...], most: int | None,
        parent: int | None, how: str, limit_s: float | None, begin_s: int, saves: bool,
    ) -> None:  # fmt: skip
        number = self.state.counters.job
        spec = JobSpec(
            name="j", entrypoint="m:f", workdir="/w", team=team, min_devices=low, max_devices=min(4, low + more),
            total_steps=steps, global_batch=8, array=tasks, max_parallel=most, time_limit_s=limit_s,
            after=((parent, how),) if parent is not None else (), begin_us=self.now + begin_s * US if begin_s else None,
            checkpoint=CheckpointSpec(dir=f"/c/{number}") if saves else None,
        )  # fmt: skip
        self._ask(lambda n: Submit(request=n, spec=spec, spec_key="k", user=user))

    @rule(node=st.sampled_from(NODES), team=st.sampled_from(("", *TEAMS)), wait_s=st.sampled_from((0, 3)))
    def reserve(self, node: str, team: str, wait_s: int) -> None:
        begin = self.now + wait_s * US
        record = Reservation(name="r", nodes=(node,), from_us=begin, until_us=begin + 10 * US, team=team)
        self._ask(lambda n: Write(request=n, actor="op", record=record))

    @rule(job=WHICH, verb=st.sampled_from(Verb))
    def order(self, job: int, verb: Verb) -> None:
        self._ask(lambda n: Order(request=n, job=job, actor="op", verb=verb, signal="SIGUSR1"))

    @rule(job=WHICH, team=st.sampled_from(TEAMS), low=st.integers(1, 4))
    def change(self, job: int, team: str, low: int) -> None:
        self._ask(lambda n: Change(request=n, job=job, actor="op", changes={"team": team}))
        sizes = {"min_devices": low, "max_devices": 4}
        self._ask(lambda n: Change(request=n, job=job, actor="op", changes=sizes))

    @invariant()
    def nothing_starts_before_its_time(self) -> None:
        for job in self.state.jobs.values():
            if job.last_attempt:
                assert not job.waits_for
                assert (job.spec.begin_us or 0) <= self.now

    @invariant()
    def arrays_keep_their_cap(self) -> None:
        for job in self.state.jobs.values():
            if job.array == job.id and job.spec.max_parallel is not None:
                tasks = [other for other in self.state.jobs.values() if other.array == job.id]
                assert sum(task.state is JobState.ACTIVE for task in tasks) <= job.spec.max_parallel

    def teardown(self) -> None:
        """Once nothing is forbidden any more, everything ends."""
        for kind in ("team", "user", "reservation"):
            for name in list(self.state.book(kind)):
                self._ask(lambda n, kind=kind, name=name: Erase(request=n, actor="op", kind=kind, name=name))
        self._ask(lambda n: Write(request=n, actor="op", record=Queue(name="default")))
        super().teardown()
        used = sum(account.gpu_s for account in self.state.accounts.values())
        assert used >= 0
        assert all(account.lost_gpu_s <= account.gpu_s + 1e-6 for account in self.state.accounts.values())


TenantsMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestTenants = TenantsMachine.TestCase
