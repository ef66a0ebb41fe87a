"""Layers change ranks: each goes from a member that has it to every member that shall have it, peer to peer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from policies.ir.plan import ParallelPlan
from worker import flat
from worker.layer import Layer
from worker.rendezvous import Rendezvous
from worker.transport import Group

Owners = dict[int, tuple[int, ...]]
"""Members that hold each layer, in order of their ranks."""


@dataclass(frozen=True)
class Transfer:
    """One layer's way. source, destination: members."""

    layer: int
    source: int
    destination: int


def owners(plan: ParallelPlan, members: tuple[int, ...]) -> Owners:
    """members: of each rank."""
    return {layer: tuple(members[rank] for rank in stage.ranks) for stage in plan.stages for layer in stage.layers}


def transfers(old: Owners, new: Owners) -> list[Transfer]:
    """What must travel, in layer order. Replicas that hold a layer take turns in giving it."""
    found: list[Transfer] = []
    for layer in sorted(new):
        for destination in new[layer]:
            if destination not in old[layer]:
                found.append(Transfer(layer, old[layer][len(found) % len(old[layer])], destination))
    return found


def exchange(
    plan: list[Transfer],
    me: int,
    place: Mapping[int, int],
    held: Mapping[int, Layer],
    fresh: Mapping[int, Layer],
    group: Group,
    meet: Rendezvous,
    timeout_s: float,
) -> None:
    """Run this member's part: send from `held`, receive into `fresh` (built, values of no account).

    place: rank of each member in the group. Sent layers stay as they are, until the change is decided.

    Raises:
        PeerLost, Ended.
    """
    for index in sorted({transfer.layer for transfer in _of(plan, me, "source")}):
        meet.set(f"state/{index}", flat.describe(held[index]))
    posted = []
    tags = {transfer: tag for tag, transfer in enumerate(plan)}
    for transfer in _of(plan, me, "destination"):
        description = meet.get(f"state/{transfer.layer}", timeout_s)
        buffer = torch.empty(flat.size_of(description), dtype=torch.uint8)
        work = group.receive(buffer, place[transfer.source], tags[transfer])
        posted.append((work, buffer, description, fresh[transfer.layer]))
    sending = []
    for transfer in _of(plan, me, "source"):
        buffer = flat.pack(held[transfer.layer])
        sending.append((group.send(buffer, place[transfer.destination], tags[transfer]), buffer))
    for work, buffer, description, layer in posted:
        group.finish(work)
        layer.load(flat.unpack(buffer, description), description["values"])
    for work, _ in sending:
        group.finish(work)


def _of(plan: list[Transfer], me: int, end: str) -> Iterator[Transfer]:
    return (transfer for transfer in plan if getattr(transfer, end) == me)
