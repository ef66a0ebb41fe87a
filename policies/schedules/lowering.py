"""Schedule -> programs: computing actions become instruction lists with sends and receives.

A send stands right behind the action that makes its content, and its receive is appended to the peer's program at that
same moment. So both ends of every pair of ranks see their messages in one order, as NCCL demands; gloo does not mind.
"""

from policies.ir.action import Kind
from policies.ir.instruction import Instruction, Op, Program
from policies.ir.plan import ParallelPlan
from policies.ir.schedule import Schedule
from policies.schedules.assign import schedule_of
from policies.schedules.validate import walk


def orders_for(plan: ParallelPlan) -> tuple[Program, ...]:
    """The program of each rank of the plan's world for one step.

    Raises:
        ValueError: an unknown schedule, or stages that do not fit it.
    """
    return lower(schedule_of(plan))


def lower(schedule: Schedule) -> tuple[Program, ...]:
    """The program of each rank.

    Raises:
        InvalidSchedule: ranks wait for each other; the stuck heads are named.
    """
    holder = schedule.holders
    programs: list[list[Instruction]] = [[] for _ in schedule.orders]
    for rank, action in walk(schedule.orders, schedule.stages, schedule.slices):
        stage, index, chunk = action.stage, action.microbatch, action.chunk
        programs[rank].append(Instruction(Op(action.kind), stage, index, chunk))
        if action.kind is Kind.BACKWARD_WEIGHT:
            continue
        forward = action.kind is Kind.FORWARD
        target = stage + 1 if forward else stage - 1
        if not 0 <= target < schedule.stages:
            continue
        peer = holder[target, index]
        if peer != rank:
            send, receive = (Op.SEND_FORWARD, Op.RECV_FORWARD) if forward else (Op.SEND_BACKWARD, Op.RECV_BACKWARD)
            programs[rank].append(Instruction(send, stage, index, chunk, peer))
            programs[peer].append(Instruction(receive, target, index, chunk, rank))
    return tuple(map(tuple, programs))
