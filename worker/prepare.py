"""Getting ready to take layers to the next generation beside a step: build what comes, connect, say how large it is."""

from collections.abc import Callable, Mapping

import torch

from policies.ir.plan import ParallelPlan
from worker.abilities import dtype_of
from worker.carry import Carrier
from worker.entrypoint import user_exception
from worker.errors import Ended
from worker.layer import Layer, build_layers
from worker.reshard import Transfer, carried, incoming, outgoing
from worker.sdk import PipelineJob
from worker.world import World

PREPARE_S = 30.0


class NotReady(Exception):
    """A member could not get ready, so none does; the message says why."""


def prepare(
    job: PipelineJob,
    member: int,
    old: World,
    new: World,
    held: Mapping[int, Layer],
    device: torch.device,
    check: Callable[[], None],
) -> Carrier:
    """All members of the old generation come here together, between two steps. held: this member's layers.

    Raises:
        NotReady: in all of them alike. PeerLost, Ended.
    """
    ways = carried(old.plan, old.members, new.plan, new.members)
    meet = new.meet(check)
    fresh, reason = _build(job, member, ways, device, new.plan)
    reasons = [answer for answer in meet.all("carry", member, old.members, reason, PREPARE_S) if answer]
    if reasons:
        raise NotReady(reasons[0])
    groups = new.groups("carry", old.members, member, lambda: None, PREPARE_S)
    groups.give_way()
    place = {other: rank for rank, other in enumerate(old.members)}
    sending = outgoing(ways, member, place, held, meet)
    return Carrier(groups.world, sending, incoming(ways, member, place, fresh, meet, PREPARE_S))


def _build(
    job: PipelineJob, member: int, ways: list[Transfer], device: torch.device, plan: ParallelPlan
) -> tuple[dict[int, Layer], str]:
    """The layers that come here, and why they could not be built, "" where they could."""
    try:
        wanted = [transfer.layer for transfer in ways if transfer.destination == member]
        return build_layers(job, wanted, device, dtype_of(plan), False, plan.offload), ""
    except Ended as end:
        return {}, end.message or str(end.cause)
    except Exception as error:
        return {}, user_exception(error, "building layers for the next generation raised").message
