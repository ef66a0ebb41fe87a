"""One generation's meeting place: its number, its members, a client of its store, the keys in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause, Target
from worker.errors import Ended
from worker.rendezvous import Rendezvous
from worker.transport import Groups, connect_store


@dataclass(frozen=True)
class World:
    """members: of each rank. address: the store's, "host:port"."""

    generation: int
    plan: ParallelPlan
    members: tuple[int, ...]
    address: str
    prefix: str
    store: Any

    def meet(self, check: Callable[[], None]) -> Rendezvous:
        return Rendezvous(self.store, self.prefix, check)

    def connect_again(self, timeout_s: float) -> Rendezvous:
        """A client of its own, for a thread of its own."""
        return Rendezvous(connect_store(self.address, timeout_s), self.prefix, lambda: None)

    def rank_of(self, member: int) -> int | None:
        return self.members.index(member) if member in self.members else None

    def groups(
        self, name: str, among: tuple[int, ...], member: int, on_lost: Callable[[], None], timeout_s: float
    ) -> Groups:
        """Groups with one rank a member, in this order. All of them call it; it blocks until they have."""
        host = self.address.rpartition(":")[0]
        prefix = f"{self.prefix}/{name}"
        return Groups(self.store, prefix, among.index(member), len(among), host, on_lost, timeout_s)


def enter(target: Target, address: str, timeout_s: float) -> World:
    """Connect to the store of a Target's generation.

    Raises:
        Ended: the Target's plan and ranks do not fit each other. PeerLost: nobody answers.
    """
    if target.plan is None:
        raise Ended(Cause.BAD_SPEC, "a training attempt needs a plan")
    if len(target.ranks) != target.plan.world_size:
        raise Ended(Cause.PLAN_MISMATCH, f"members {target.ranks} are not the plan's {target.plan.world_size} ranks")
    return World(
        target.generation,
        target.plan,
        target.ranks,
        address,
        f"{target.spec.nonce}/{target.generation}",
        connect_store(address, timeout_s),
    )
