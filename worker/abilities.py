"""What this worker makes of a plan: layers, dtypes and programs of its ranks, or why it cannot run it."""

import torch

from policies.ir.instruction import Program
from policies.ir.plan import ParallelPlan
from policies.schedules.catalogue import FAMILIES
from policies.schedules.lowering import orders_for
from scheduler.protocol.messages import Cause
from worker.errors import Ended
from worker.rampup import Rampup
from worker.scaling import SCALED

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32, "float16": torch.float32}
"""Of parameters and optimizer state, by precision."""
AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""What is computed in another dtype than the parameters'."""


def own_layers(plan: ParallelPlan, rank: int) -> list[int]:
    """Global indices of the layers that this rank holds."""
    return [index for stage in plan.stages if rank in stage.ranks for index in stage.layers]


def dtype_of(plan: ParallelPlan) -> torch.dtype:
    """Of the plan's parameters. Raises Ended, NOT_SUPPORTED, for what this worker cannot honour."""
    if plan.precision not in DTYPES:
        raise Ended(Cause.NOT_SUPPORTED, f"precision {plan.precision!r} is not supported yet; use {', '.join(DTYPES)}")
    return DTYPES[plan.precision]


def is_synchronous(plan: ParallelPlan) -> bool:
    """Weights change between steps only. What is not known has no schedule at all."""
    return plan.schedule not in FAMILIES or not FAMILIES[plan.schedule].asynchronous


def check_rampup(rampup: Rampup, plan: ParallelPlan) -> None:
    """Raises Ended, NOT_SUPPORTED: a smaller batch does not give each replica whole micro-batches."""
    for _, batch in rampup:
        if batch % plan.microbatch_size or batch < plan.microbatch_size * plan.replicas:
            raise Ended(
                Cause.NOT_SUPPORTED,
                f"batch_rampup: {batch} samples are no whole micro-batches of {plan.microbatch_size} for each of "
                f"{plan.replicas} replicas",
            )
    if rampup and not is_synchronous(plan):
        raise Ended(Cause.NOT_SUPPORTED, f"batch_rampup with the asynchronous {plan.schedule!r}: not supported yet")


def programs_of(plan: ParallelPlan) -> tuple[Program, ...]:
    """The plan's programs, rank by rank.

    Raises:
        Ended: NOT_SUPPORTED for a plan that this worker cannot run, with the reason.
    """
    dtype_of(plan)
    family = FAMILIES.get(plan.schedule)
    if family is not None and not family.recomputes and plan.recomputes:
        what = "sliced" if family.sliced else "asynchronous"
        raise Ended(Cause.NOT_SUPPORTED, f"recompute with the {what} {plan.schedule!r}: not supported yet")
    if family is not None and family.asynchronous:
        if plan.precision in SCALED:
            raise Ended(Cause.NOT_SUPPORTED, f"{plan.precision} with {plan.schedule!r}: its stages step by themselves")
        if plan.replicas > 1:
            raise Ended(Cause.NOT_SUPPORTED, f"replicas with the asynchronous {plan.schedule!r}: not supported yet")
        if plan.microbatches < len(plan.stages):
            raise Ended(
                Cause.NOT_SUPPORTED, f"{plan.schedule!r} needs a micro-batch for each of {len(plan.stages)} stages"
            )
    try:
        return orders_for(plan)
    except ValueError as error:
        raise Ended(Cause.NOT_SUPPORTED, f"the plan cannot run: {error}") from None


def unfit(plan: ParallelPlan) -> str:
    """Why this worker cannot run the plan; "" where it can. Found before anything is stopped for it."""
    try:
        programs_of(plan)
    except Ended as end:
        return end.message
    return ""
