"""From one generation to the next without stopping: transfer at a boundary, decide once. Before it: `worker.proposal`.

Keys in the new generation's store: ready/MEMBER ("" or why not), switch (where training stands, from the old pilot; or
why there is no change), state/LAYER, vote/MEMBER ("" or why not), decision ("commit" or "abort: ..."), done/MEMBER.
Until the decision everything can go back: old layers and old groups are kept. After it nothing can.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.abilities import dtype_of, own_layers, unfit
from worker.adapt.meter import Meter
from worker.control import Control
from worker.entrypoint import user_exception
from worker.errors import Ended, PeerLost
from worker.generation import Generation
from worker.layer import Layer, build_layers
from worker.progress import Progress
from worker.rendezvous import Rendezvous
from worker.reshard import exchange, incoming, outgoing, owners, transfers
from worker.sdk import PipelineJob
from worker.shapes import LayerShapes, Shape
from worker.transport import Group
from worker.world import World

DECIDE_S = 30.0
DOUBT_S = 10.0


@dataclass(frozen=True)
class Standing:
    """Where training stands at the switch: all that a newcomer needs besides layers. model: its fingerprint.

    plan, members: the old ones.
    """

    model: str
    progress: Progress
    plan: ParallelPlan
    members: tuple[int, ...]
    shapes: LayerShapes

    def described(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "model": self.model,
            "progress": msgspec.to_builtins(self.progress),
            "plan": msgspec.to_builtins(self.plan),
            "members": self.members,
            "shapes": {str(layer): shape.described() for layer, shape in self.shapes.items()},
        }

    @staticmethod
    def read(described: dict[str, Any]) -> "Standing":
        return Standing(
            described["model"],
            msgspec.convert(described["progress"], Progress),
            msgspec.convert(described["plan"], ParallelPlan),
            tuple(described["members"]),
            {int(layer): Shape.read(shape) for layer, shape in described["shapes"].items()},
        )


@dataclass(frozen=True)
class Switched:
    """What came of a change in one member. generation: None in a member that has left."""

    layers: dict[int, Layer]
    generation: Generation | None


class Dropped(Exception):
    """The change was aborted: the old generation goes on as if nothing had been."""


class Switch:
    """Takes one member, old or new, through the change. Everything that may raise happens before its vote."""

    def __init__(
        self, control: Control, job: PipelineJob, member: int, world: World, standing: Standing, device: torch.device,
        meter: Meter | None = None,
    ) -> None:  # fmt: skip
        self._meter = meter
        self._control, self._job, self._member, self._world = control, job, member, world
        self._standing, self._device = standing, device
        self._union = tuple(sorted({*standing.members, *world.members}))
        self._lost = threading.Event()

    @property
    def _meet(self) -> Rendezvous:
        """Made anew: kept here, each would keep the other, and the old store's connection."""
        return self._world.meet(self._check)

    def run(
        self,
        held: dict[int, Layer],
        carried: dict[int, Layer] | None,
        leads: bool,
        leave: Callable[[], list[Any]],
    ) -> Switched:
        """held: layers of the old generation here. carried: those that came here during the last step, None where
        nobody's did. leads: this is the old pilot. leave: gives up the old generation, and its connections.

        Raises:
            Dropped: aborted. Ended: in doubt, or a peer of the old generation is gone.
        """
        union = None
        switched, reason = Switched({}, None), ""
        try:
            self._meet.all("here", self._member, self._union, True, DECIDE_S)
            union = self._world.groups("union", self._union, self._member, self._lost.set, DECIDE_S)
            union.watch()
            switched = self._transfer(held, carried, union.world)
        except Ended as end:
            reason = end.message or end.cause
        except Exception as error:
            reason = user_exception(error, "the change raised").message
        if reason and union is not None:
            union.break_off()
        decision = self._decide(reason, leads)
        connections = union.release() if union is not None else []
        if decision != "commit":
            connections += switched.generation.release() if switched.generation is not None else []
            threading.Thread(target=connections.clear, name="hang up", daemon=True).start()
            raise Dropped(decision)
        connections += leave()
        for layer in switched.layers.values():  # not earlier: nothing of the old generation changes before the decision
            layer.keep_optimizer(self._world.plan.offload)
        if switched.generation is not None:
            switched.generation.groups.watch()
        self._meet.set(f"done/{self._member}", True)
        if switched.generation is None:
            self._wait_for_others(self._world.meet(lambda: None))
        else:
            threading.Thread(target=self._hang_up, args=(connections,), name="hang up", daemon=True).start()
        return switched

    def _transfer(self, held: dict[int, Layer], carried: dict[int, Layer] | None, union: Group) -> Switched:
        world = self._world
        rank = world.rank_of(self._member)
        wanted = own_layers(world.plan, rank) if rank is not None else []
        here = held | (carried or {})
        missing = [layer for layer in wanted if layer not in here]
        fresh = build_layers(self._job, missing, self._device, dtype_of(world.plan), False, world.plan.offload)
        old = self._standing
        plan = transfers(owners(old.plan, old.members), owners(world.plan, world.members))
        if carried is not None:
            plan = [transfer for transfer in plan if transfer.destination not in old.members]
        place = {member: index for index, member in enumerate(self._union)}
        sending = outgoing(plan, self._member, place, held, self._meet)
        exchange(union, sending, incoming(plan, self._member, place, fresh, self._meet, DECIDE_S))
        if rank is None:
            return Switched({}, None)
        layers = {layer: here[layer] if layer in here else fresh[layer] for layer in wanted}
        groups = world.groups("ranks", world.members, self._member, self._control.peer_lost, DECIDE_S)
        same_size = world.plan.microbatch_size == self._standing.plan.microbatch_size
        shapes = self._standing.shapes if same_size else None
        return Switched(
            layers,
            Generation(
                self._job, world, self._member, layers, groups, self._meet, shapes, self._device, DECIDE_S, self._meter
            ),
        )

    def _decide(self, reason: str, leads: bool) -> str:
        """Vote, and hear the one decision. The old pilot makes it.

        Raises:
            Ended: none is readable; this member must not guess.
        """
        meet = self._world.meet(self._control.check_peers)
        meet.set(f"vote/{self._member}", reason)
        if leads:
            meet.decide("decision", self._count(reason))
        try:
            decision: str = meet.get("decision", DECIDE_S + DOUBT_S)
        except Ended as end:
            raise PeerLost(f"in doubt about generation {self._world.generation}: {end.message}") from None
        return decision

    def _count(self, reason: str) -> str:
        try:
            votes = self._meet.gather([f"vote/{member}" for member in self._union], DECIDE_S)
        except Ended as end:
            return f"abort: {end.message}"
        against = [vote for vote in (reason, *votes) if vote]
        return f"abort: {against[0]}" if against else "commit"

    def _hang_up(self, connections: list[Any]) -> None:
        """Runs in a thread: gloo takes up to 10 ms for each connection."""
        with contextlib.suppress(Ended):
            self._wait_for_others(self._world.connect_again(DOUBT_S))
        connections.clear()

    def _wait_for_others(self, meet: Rendezvous) -> None:
        """Whoever leaves hangs up only when nobody takes that for a death any more."""
        with contextlib.suppress(Ended):
            meet.gather([f"done/{member}" for member in self._union], DOUBT_S)

    def _check(self) -> None:
        self._control.check_peers()
        if self._lost.is_set():
            raise PeerLost("a member of the change is gone")


def join(control: Control, world: World, timeout_s: float) -> Standing:
    """A newcomer, built and imported: say so, and wait for the switch.

    Raises:
        Ended: STOPPED when asked to stop, or when there is no change after all.
    """
    member = control.target.member
    meet = world.meet(control.check_start)
    meet.set(f"ready/{member}", unfit(world.plan))
    switch = meet.get("switch", timeout_s)
    if "abort" in switch:
        raise Ended(Cause.STOPPED, f"generation {world.generation} was dropped: {switch['abort']}")
    return Standing.read(switch)


def announce(world: World, standing: Standing) -> None:
    """The old pilot's word to newcomers at the boundary."""
    world.meet(lambda: None).set("switch", standing.described())
