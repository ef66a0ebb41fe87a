"""Tied parameters: copies in several layers that stay one, wherever the layers are.

Each layer holds a copy with an optimizer of its own. Copies start equal and get the same gradient, the sum of all
copies' gradients in layer order, so that they stay equal; and the same bits on every cut.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.layer import Layer, TiedParameter
from worker.transport import Group


class Ties:
    """The ties that concern one rank. first_tag: message tags from here on are free."""

    def __init__(
        self,
        groups: Sequence[Sequence[TiedParameter]],
        plan: ParallelPlan,
        rank: int,
        layers: Mapping[int, Layer],
        world: Group,
        first_tag: int,
    ) -> None:
        self._rank, self._layers, self._world, self._first_tag = rank, layers, world, first_tag
        if groups and len({len(stage.ranks) for stage in plan.stages}) > 1:
            raise Ended(Cause.NOT_SUPPORTED, "ties between stages with different replicas are not supported yet")
        self._groups: list[list[tuple[int, TiedParameter]]] = []
        self._tags: list[int] = []
        for tag, group in enumerate(groups):
            replica = _replica(plan, rank, group)
            if replica is not None:
                self._groups.append([(_stage_of(plan, tied.layer).ranks[replica], tied) for tied in group])
                self._tags.append(first_tag + tag * max(len(one) for one in groups))

    def sum_gradients(self) -> None:
        """After the gradients of replicas are summed: each copy gets the sum over all copies."""
        for group, tag in zip(self._groups, self._tags, strict=True):
            found = self._gather(group, tag)
            total = found[0].clone()
            for gradient in found[1:]:
                total += gradient
            for rank, tied in group:
                if rank == self._rank:
                    self._layers[tied.layer].parameter(tied.name).grad = total.clone()

    def _gather(self, group: list[tuple[int, TiedParameter]], tag: int) -> list[Tensor]:
        """All copies' gradients in layer order; each rank gives its own to every other one."""
        mine = next(tied for rank, tied in group if rank == self._rank)
        like = self._layers[mine.layer].parameter(mine.name)
        others = sorted({rank for rank, _ in group} - {self._rank})
        found, works = [], []
        for place, (rank, tied) in enumerate(group):
            if rank == self._rank:
                gradient = self._gradient(tied)
                works += [self._world.send(gradient, other, tag + place) for other in others]
            else:
                gradient = torch.empty_like(like)
                works.append(self._world.receive(gradient, rank, tag + place))
            found.append(gradient)
        for work in works:
            self._world.finish(work)
        return found

    def _gradient(self, tied: TiedParameter) -> Tensor:
        parameter = self._layers[tied.layer].parameter(tied.name)
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()


def _stage_of(plan: ParallelPlan, layer: int) -> StagePlan:
    return next(stage for stage in plan.stages if layer in stage.layers)


def _replica(plan: ParallelPlan, rank: int, group: Sequence[TiedParameter]) -> int | None:
    """Which replica this rank is among the group's holders; None where it holds none of them."""
    for tied in group:
        ranks = _stage_of(plan, tied.layer).ranks
        if rank in ranks:
            return ranks.index(rank)
    return None
