"""Schedule -> programs: computing actions become instruction lists with sends and receives.

A send stands right behind the action that makes its content, and its receive is appended to the peer's program at that
same moment. So both ends of every pair of ranks see their messages in one order, as NCCL demands; gloo does not mind.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from policies.ir.action import Action, Kind
from policies.ir.instruction import Instruction, Op, Program
from policies.ir.plan import ParallelPlan
from policies.ir.schedule import Schedule
from policies.schedules.catalogue import FAMILIES, make_schedule
from policies.schedules.validate import walk

CHUNKED = frozenset(name for name, family in FAMILIES.items() if family.chunks is None)


def lower(schedule: Schedule) -> tuple[Program, ...]:
    """The program of each rank of one pipeline.

    Raises:
        InvalidSchedule: ranks wait for each other; the stuck heads are named.
    """
    return _lower(schedule.orders, schedule.stages, schedule.slices, lambda stage, _: schedule.stage_rank[stage])


def orders_for(plan: ParallelPlan) -> tuple[Program, ...]:
    """The program of each rank of the plan's world for one step.

    Replica j of every stage together form pipeline j. It runs its own share of the step's micro-batches: replica 0 the
    first `shares[0]` of the global indices, replica 1 the next `shares[1]`, and so on.

    Raises:
        ValueError: an unknown schedule, or stages that do not fit it.
    """
    shares = plan.stages[0].shares
    if any(stage.shares != shares or len(stage.ranks) != len(shares) for stage in plan.stages):
        raise ValueError("stages with different replicas or shares are not supported yet")
    if sum(shares) != plan.microbatches:
        raise ValueError(f"shares {shares} do not sum to the plan's {plan.microbatches} micro-batches")
    orders: list[tuple[Action, ...]] = [()] * plan.world_size
    for replica, share in enumerate(shares):
        world = [stage.ranks[replica] for stage in plan.stages]
        ranks = list(dict.fromkeys(world))
        chunks = len(world) // len(ranks) if plan.schedule in CHUNKED else None
        schedule = make_schedule(plan.schedule, len(ranks), share, chunks=chunks)
        if [ranks[rank] for rank in schedule.stage_rank] != world:
            raise ValueError(f"schedule {plan.schedule!r} does not lay {len(world)} stages on ranks {world}")
        offset = sum(shares[:replica])
        for rank, order in zip(ranks, schedule.orders, strict=True):
            orders[rank] = tuple(replace(action, microbatch=action.microbatch + offset) for action in order)
    owner = [replica for replica, share in enumerate(shares) for _ in range(share)]
    slices = 1 + max(action.chunk for order in orders for action in order)
    return _lower(orders, len(plan.stages), slices, lambda stage, index: plan.stages[stage].ranks[owner[index]])


def _lower(
    orders: Sequence[Sequence[Action]], stages: int, slices: int, rank_of: Callable[[int, int], int]
) -> tuple[Program, ...]:
    programs: list[list[Instruction]] = [[] for _ in orders]
    for rank, action in walk(orders, stages, slices):
        stage, index, chunk = action.stage, action.microbatch, action.chunk
        programs[rank].append(Instruction(Op(action.kind), stage, index, chunk))
        if action.kind is Kind.BACKWARD_WEIGHT:
            continue
        forward = action.kind is Kind.FORWARD
        target = stage + 1 if forward else stage - 1
        if not 0 <= target < stages:
            continue
        peer = rank_of(target, index)
        if peer != rank:
            send, receive = (Op.SEND_FORWARD, Op.RECV_FORWARD) if forward else (Op.SEND_BACKWARD, Op.RECV_BACKWARD)
            programs[rank].append(Instruction(send, stage, index, chunk, peer))
            programs[peer].append(Instruction(receive, target, index, chunk, rank))
    return tuple(map(tuple, programs))
