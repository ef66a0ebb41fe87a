"""A schedule: for each rank of one pipeline, the ordered actions of one step."""

from dataclasses import dataclass

from policies.ir.action import Action


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of one step. It knows nothing of time; `policies.timing` prices it.

    stage_rank: the pipeline rank that holds each global stage; length = number of stages.
    orders: for each pipeline rank its actions, in order.
    chunks: stages that each rank holds. slices: token slices that each micro-batch is cut into.
    versions: weight versions that each rank keeps, for asynchronous schedules; empty where the step is synchronous.
    """

    name: str
    microbatches: int
    stage_rank: tuple[int, ...]
    orders: tuple[tuple[Action, ...], ...]
    chunks: int = 1
    slices: int = 1
    versions: tuple[int, ...] = ()

    @property
    def stages(self) -> int:
        return len(self.stage_rank)

    @property
    def ranks(self) -> int:
        return len(self.orders)

    @property
    def holders(self) -> dict[tuple[int, int], int]:
        """The rank that runs each (stage, micro-batch)."""
        return {(action.stage, action.microbatch): rank for rank, order in enumerate(self.orders) for action in order}
