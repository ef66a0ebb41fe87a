"""A revision: the next plan of the same generation, made known to every rank before anything is stopped for it.

Keys in the generation's store: revision/NUMBER (the plan), revision/NUMBER/refused/RANK (why that rank cannot).
"""

from dataclasses import dataclass, replace

import msgspec

from policies.ir.plan import ParallelPlan
from worker.abilities import is_synchronous, programs_of
from worker.errors import Ended
from worker.rendezvous import Rendezvous
from worker.reshard import carried
from worker.world import World

READ_S = 10.0


@dataclass(frozen=True)
class Revise:
    """What a trainer returns at the boundary where this revision takes over."""

    number: int


class Reviser:
    """One rank's part: it reads the plan, and says whether it can run it."""

    def __init__(self, world: World, meet: Rendezvous, rank: int) -> None:
        self._world, self._meet, self._rank = world, meet, rank
        self._plans: dict[int, ParallelPlan] = {}
        self.prepared = 0
        """The newest revision that is ready here; negative: that one is refused."""

    def publish(self, number: int, plan: ParallelPlan) -> None:
        """The pilot's word, before it announces the number."""
        self._meet.set(f"revision/{number}", msgspec.to_builtins(plan))

    def prepare(self, number: int) -> None:
        """Between two steps. Raises Ended where the store is gone."""
        plan = msgspec.convert(self._meet.get(f"revision/{number}", READ_S), ParallelPlan)
        try:
            programs_of(plan)
        except Ended as end:
            self._meet.set(f"revision/{number}/refused/{self._rank}", end.message)
            self.prepared = -number
            return
        self._plans = {number: plan}
        self.prepared = number

    def refusal(self, number: int, rank: int) -> str:
        why: str = self._meet.get(f"revision/{number}/refused/{rank}", READ_S)
        return why

    def carries(self, number: int) -> bool:
        """Layers change ranks, and a step leaves their state alone until its end."""
        members, plan = self._world.members, self._plans[number]
        return is_synchronous(plan) and bool(carried(self._world.plan, members, plan, members))

    def plan(self, number: int) -> ParallelPlan:
        """Of a revision that was prepared here."""
        return self._plans[number]


def revised(world: World, number: int, plan: ParallelPlan) -> World:
    """The same members around the same store, with keys of its own."""
    return replace(world, plan=plan, prefix=f"{world.prefix}/{number}")
