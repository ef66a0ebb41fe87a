"""Plan -> the actions of every rank of its world: which micro-batches each replica runs, and in which order."""

from dataclasses import replace

from policies.ir.action import Action, Kind
from policies.ir.plan import ParallelPlan
from policies.ir.schedule import Schedule
from policies.schedules.catalogue import make_schedule
from policies.schedules.one_f_one_b import alternate


def schedule_of(plan: ParallelPlan) -> Schedule:
    """The order of one step of a plan, over all ranks of its world; stage_rank names the first replica of each stage.

    Where all stages have the same shares, replica j of every stage together form pipeline j, and run its share of the
    global indices: replica 0 the first `shares[0]`, replica 1 the next, and so on. Where they differ, every stage deals
    the micro-batches out to its replicas in turn, in proportion to their shares.

    Raises:
        ValueError: an unknown schedule, shares that do not sum, or stages that do not fit the schedule.
    """
    for stage in plan.stages:
        if sum(stage.shares) != plan.microbatches or len(stage.shares) != len(stage.ranks):
            raise ValueError(f"shares {stage.shares} do not sum to the plan's {plan.microbatches} micro-batches")
    if all(stage.shares == plan.stages[0].shares for stage in plan.stages):
        orders, chunks = _pipelines(plan)
    else:
        orders, chunks = _dealt(plan), 1
    slices = 1 + max(action.chunk for order in orders for action in order)
    stage_rank = tuple(stage.ranks[0] for stage in plan.stages)
    return Schedule(plan.schedule, plan.microbatches, stage_rank, orders, chunks, slices)


def _pipelines(plan: ParallelPlan) -> tuple[tuple[tuple[Action, ...], ...], int]:
    orders: list[tuple[Action, ...]] = [()] * plan.world_size
    shares, offset, chunks = plan.stages[0].shares, 0, 1
    for replica, share in enumerate(shares):
        world = [stage.ranks[replica] for stage in plan.stages]
        ranks = list(dict.fromkeys(world))
        chunks = len(world) // len(ranks)
        slices = plan.slices if plan.slices > 1 else None
        schedule = make_schedule(
            plan.schedule, len(ranks), share, chunks=chunks if chunks > 1 else None, slices=slices
        )
        if [ranks[rank] for rank in schedule.stage_rank] != world:
            raise ValueError(f"schedule {plan.schedule!r} does not lay {len(world)} stages on ranks {world}")
        for rank, order in zip(ranks, schedule.orders, strict=True):
            orders[rank] = tuple(replace(action, microbatch=action.microbatch + offset) for action in order)
        offset += share
    return tuple(orders), chunks


def _dealt(plan: ParallelPlan) -> tuple[tuple[Action, ...], ...]:
    if plan.schedule not in {"gpipe", "1f1b", "eager-1f1b", "async-1f1b", "2bw"}:
        raise ValueError(f"schedule {plan.schedule!r} needs the same replicas and shares at every stage")
    orders: list[tuple[Action, ...]] = [()] * plan.world_size
    behind = 0
    for index in reversed(range(len(plan.stages))):
        stage = plan.stages[index]
        owner = deal(stage.shares)
        for replica, rank in enumerate(stage.ranks):
            own = [i for i, who in enumerate(owner) if who == replica]
            depth = {"gpipe": len(own), "eager-1f1b": 1 + -(-2 * behind // len(stage.ranks))}
            alive = depth.get(plan.schedule, 1 + -(-behind // len(stage.ranks)))
            if plan.schedule == "gpipe":
                order = [Action(index, kind, i) for kind in (Kind.FORWARD, Kind.BACKWARD) for i in own]
            else:
                order = [
                    replace(action, microbatch=own[action.microbatch]) for action in alternate(index, len(own), alive)
                ]
            if orders[rank]:
                raise ValueError(
                    f"rank {rank} holds two stages; stages with different replicas need ranks of their own"
                )
            orders[rank] = tuple(order)
        behind += len(stage.ranks)
    return tuple(orders)


def deal(shares: tuple[int, ...]) -> list[int]:
    """The replica of each micro-batch: always the one that is furthest behind its share; among equals the first."""
    given = [0] * len(shares)
    owner = []
    for index in range(sum(shares)):
        expected = [(index + 1) * share / sum(shares) - have for share, have in zip(shares, given, strict=True)]
        replica = max(range(len(shares)), key=lambda j: (expected[j] if given[j] < shares[j] else -1.0, -j))
        given[replica] += 1
        owner.append(replica)
    return owner
