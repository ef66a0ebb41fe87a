"""ParallelPlan: how one job is cut and run. Checkpoints, database, wire and `jct plan` all carry this value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Layers [first, stop) of the model, run by `ranks` (one a replica).

    shares: micro-batches of each replica in a step, in rank order; they sum to the plan's micro-batch count.
    """

    first: int
    stop: int
    ranks: tuple[int, ...]
    shares: tuple[int, ...]
    recompute: bool = False

    @property
    def layers(self) -> range:
        return range(self.first, self.stop)


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Layer ranges and ranks per stage, micro-batch count and size, schedule, precision, device kinds.

    microbatches: count in one step, over all replicas together.
    microbatch_size: samples in each micro-batch; count x size = global batch.
    device_kinds: of each rank, in rank order; empty where it does not matter.
    offload: the optimizer's state lives in host memory.
    slices: token slices that each micro-batch is cut into, for schedules that slice.
    """

    stages: tuple[StagePlan, ...]
    microbatches: int
    microbatch_size: int
    schedule: str = "1f1b"
    precision: str = "float32"
    device_kinds: tuple[str, ...] = ()
    version: int = 1
    offload: bool = False
    slices: int = 1

    @property
    def world_size(self) -> int:
        return 1 + max(rank for stage in self.stages for rank in stage.ranks)

    @property
    def replicas(self) -> int:
        """Largest number of replicas of any stage."""
        return max(len(stage.ranks) for stage in self.stages)

    @property
    def global_batch(self) -> int:
        return self.microbatches * self.microbatch_size

    @property
    def layer_count(self) -> int:
        return self.stages[-1].stop

    @property
    def pilot_rank(self) -> int:
        """Replica 0 of the last stage: it owns every change inside the running job."""
        return self.stages[-1].ranks[0]

    @property
    def recomputes(self) -> bool:
        """Some stage keeps its inputs only and runs forward again."""
        return any(stage.recompute for stage in self.stages)

    @property
    def saving(self) -> str:
        """What saves memory, in words that follow others; empty for nothing."""
        return " with recompute" * self.recomputes + " with offload" * self.offload

    @property
    def name(self) -> str:
        """As people say it: shape, schedule, and what saves memory."""
        return f"{self.shape} {self.schedule}{self.saving}"

    @property
    def sizes(self) -> str:
        """Layers of each stage, such as 5+3+4+4."""
        return "+".join(str(len(stage.layers)) for stage in self.stages)

    @property
    def shape(self) -> str:
        """The short form people read: stages × micro-batches, with replicas where there are any."""
        counts = [len(stage.ranks) for stage in self.stages]
        each = f"{self.replicas}" if len(set(counts)) == 1 else "+".join(map(str, counts))
        wide = f"×{each}r" if self.replicas > 1 else ""
        return f"{len(self.stages)}×{self.microbatches}{wide}"
