"""Layers change ranks: each goes from a member that has it to every member that shall have it, peer to peer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from policies.ir.plan import ParallelPlan
from worker import pieces
from worker.layer import Layer
from worker.rendezvous import Rendezvous
from worker.transport import Group

Owners = dict[int, tuple[int, ...]]
"""Members that hold each layer, in order of their ranks."""

TAGS = 1 << 16
"""Message tags that each transfer has to itself."""


@dataclass(frozen=True)
class Transfer:
    """One layer's way. source, destination: members. number: among all of a change; its tags follow from it."""

    layer: int
    source: int
    destination: int
    number: int = 0

    @property
    def first_tag(self) -> int:
        return self.number * TAGS


@dataclass(frozen=True)
class Parcel:
    """A layer's state at one end of its way: messages to or from `peer` (a rank of the group), and their tags."""

    transfer: Transfer
    layer: Layer
    peer: int
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]
    messages: Sequence[Tensor]

    def install(self) -> None:
        """At the destination, when everything has arrived. Raises ValueError: it is the state of another layer."""
        self.layer.load(dict(self.tensors), dict(self.values))


def owners(plan: ParallelPlan, members: tuple[int, ...]) -> Owners:
    """members: of each rank."""
    return {layer: tuple(members[rank] for rank in stage.ranks) for stage in plan.stages for layer in stage.layers}


def transfers(old: Owners, new: Owners) -> list[Transfer]:
    """What must travel, in layer order. Replicas that hold a layer take turns in giving it."""
    found: list[Transfer] = []
    for layer in sorted(new):
        for destination in new[layer]:
            if destination not in old[layer]:
                source = old[layer][len(found) % len(old[layer])]
                found.append(Transfer(layer, source, destination, len(found)))
    return found


def carried(
    old: ParallelPlan, old_members: tuple[int, ...], new: ParallelPlan, new_members: tuple[int, ...]
) -> list[Transfer]:
    """Those of a change's transfers that both ends can make while they train: nobody has to join for them."""
    everything = transfers(owners(old, old_members), owners(new, new_members))
    return [transfer for transfer in everything if transfer.destination in old_members]


def outgoing(
    plan: Sequence[Transfer], me: int, place: Mapping[int, int], held: Mapping[int, Layer], meet: Rendezvous
) -> list[Parcel]:
    """What this member gives, told to the receivers. place: rank of each member in the group."""
    mine = [transfer for transfer in plan if transfer.source == me]
    for index in sorted({transfer.layer for transfer in mine}):
        meet.set(f"state/{index}", pieces.describe(held[index]))
    found = []
    for transfer in mine:
        layer = held[transfer.layer]
        tensors = pieces.leaving(layer)
        found.append(Parcel(transfer, layer, place[transfer.destination], tensors, {}, pieces.cut(tensors)))
    return found


def incoming(
    plan: Sequence[Transfer],
    me: int,
    place: Mapping[int, int],
    fresh: Mapping[int, Layer],
    meet: Rendezvous,
    timeout_s: float,
) -> list[Parcel]:
    """What this member gets, into layers that are built, their values of no account."""
    mine = [transfer for transfer in plan if transfer.destination == me]
    descriptions = meet.gather([f"state/{transfer.layer}" for transfer in mine], timeout_s) if mine else []
    found = []
    for transfer, description in zip(mine, descriptions, strict=True):
        layer = fresh[transfer.layer]
        tensors = pieces.landing(layer, description)
        peer = place[transfer.source]
        found.append(Parcel(transfer, layer, peer, tensors, description["values"], pieces.cut(tensors)))
    return found


def exchange(group: Group, sending: Sequence[Parcel], receiving: Sequence[Parcel]) -> None:
    """All parcels at once, while nothing else runs. What is sent stays as it is, until the change is decided.

    Raises:
        PeerLost.
    """
    works = []
    for parcels, post in ((receiving, group.receive), (sending, group.send)):
        for parcel in parcels:
            tag = parcel.transfer.first_tag
            works += [post(message, parcel.peer, tag + i) for i, message in enumerate(parcel.messages)]
    for work in works:
        group.finish(work)
    for parcel in receiving:
        parcel.install()
