"""Schedules with two stages a rank laid out as a V: rank r holds stages r and 2P - 1 - r, so the loss is on rank 0."""

from collections import deque

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741


class _Rank:
    """Builds one rank's order; each (chunk, kind) runs through the micro-batches in order."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.stage = (rank, 2 * ranks - 1 - rank)
        self.order: list[Action] = []
        self.count = {(chunk, kind): 0 for chunk in (0, 1) for kind in Kind}
        self.pending: deque[tuple[int, int]] = deque()

    def add(self, chunk: int, *kinds: Kind) -> None:
        for kind in kinds:
            counter = (chunk, I if kind is B else kind)
            index = self.count[counter]
            self.count[counter] += 1
            self.order.append(Action(self.stage[chunk], kind, index))
            if kind is I:
                self.pending.append((chunk, index))

    def oldest_weight(self) -> None:
        """The weight gradient that has waited longest, if any."""
        if self.pending:
            chunk, index = self.pending.popleft()
            self.order.append(Action(self.stage[chunk], W, index))


def zbv(ranks: int, microbatches: int) -> Schedule:
    """ZB-V (Qi et al., 2024): no idle time at F = I = W for m >= 2P - 1, with the activations of 1F1B.

    For fewer micro-batches the order of 2P - 1 is taken and what is beyond the step left out.
    """
    count = max(2 * ranks - 1, microbatches)
    orders = [_zbv_rank(ranks, rank, count) for rank in range(ranks)]
    return _v_schedule("zbv", ranks, microbatches, orders)


def _zbv_rank(ranks: int, rank: int, microbatches: int) -> list[Action]:
    plan = _Rank(ranks, rank)
    ahead, turn = 2 * (ranks - rank) - 1, ranks - rank
    plan.add(0, *[F] * ahead)
    for _ in range(rank):
        plan.add(1, F)
        plan.add(0, F)
    for _ in range(turn):
        plan.add(1, F, I, W)
    while plan.count[1, F] < microbatches:
        if plan.count[0, F] < microbatches:
            plan.add(0, F)
        plan.add(0, I, W)
        plan.add(1, F, I, W)
    for _ in range(rank):
        plan.add(0, I)
        plan.add(1, I)
    for _ in range(turn):
        plan.add(0, I, W)
    for chunk in (1, 0):
        plan.add(chunk, *[W] * (microbatches - plan.count[chunk, W]))
    return plan.order


def dualpipe_v(ranks: int, microbatches: int) -> Schedule:
    """DualPipeV (DeepSeek, 2025), in the order of torch.distributed.pipelining, where m >= 2P.

    For fewer micro-batches its phases do not exist, and the order of ZB-V is taken.
    """
    if microbatches < 2 * ranks:
        return _v_schedule("dualpipev", ranks, microbatches, [list(order) for order in zbv(ranks, microbatches).orders])
    orders = [_dualpipe_rank(ranks, rank, microbatches) for rank in range(ranks)]
    return _v_schedule("dualpipev", ranks, microbatches, orders)


def _dualpipe_rank(ranks: int, rank: int, microbatches: int) -> list[Action]:
    plan = _Rank(ranks, rank)
    before = ranks - rank - 1
    plan.add(0, *[F] * (2 * before))
    for _ in range(rank + 1):
        plan.add(0, F)
        plan.add(1, F)
    for _ in range(before):
        plan.add(1, I)
        plan.oldest_weight()
        plan.add(1, F)
    for _ in range(microbatches - 2 * ranks + rank + 1):
        plan.add(0, F)
        plan.add(1, B)
        plan.add(1, F)
        plan.add(0, B)
    for _ in range(before):
        plan.add(1, B)
        plan.add(1, F)
        plan.add(0, B)
    # From the middle of the last backwards on, weight gradients wait for the drain; odd ranks start one action earlier.
    middle = 2 * ((rank + 1) // 2) + (1 - rank % 2)
    for position in range(2 * (rank + 1)):
        plan.add(1 - position % 2, I if position >= middle else B)
    for _ in range(before):
        plan.oldest_weight()
        plan.add(0, I)
    for _ in range(rank + 1):
        plan.oldest_weight()
    return plan.order


def _v_schedule(name: str, ranks: int, microbatches: int, orders: list[list[Action]]) -> Schedule:
    stage_rank = (*range(ranks), *reversed(range(ranks)))
    kept = tuple(tuple(action for action in order if action.microbatch < microbatches) for order in orders)
    return Schedule(name, microbatches, stage_rank, kept, chunks=2)
