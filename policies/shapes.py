"""The ways to divide devices: each knows a bound, a guess, and its plans. Only promising ones are cut."""

from dataclasses import dataclass, field, replace

from policies.cost import LayerCosts, Memory, all_reduce_s, durations
from policies.estimate import step_estimate_s
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind
from policies.partition.cuts import Cutter
from policies.pricing import make_plan, pipelines_of, uneven_plan
from policies.schedules.catalogue import FAMILIES, stage_ranks


@dataclass(frozen=True, slots=True)
class Search:
    """What may be searched beyond the request.

    schedules: where the job pins none, simplest first. any_replicas: try every divisor of the device count. slow:
    factor on each rank's computing; empty where all are alike. recompute, offload: knobs that may save memory.
    precision: of the plan and of the bytes in the profile.
    effort: how many plans are timed, over all device counts. blocks: layers are condensed to about so many.
    """

    schedules: tuple[str, ...] = ("1f1b",)
    any_replicas: bool = False
    slow: tuple[float, ...] = ()
    recompute: bool = False
    offload: bool = False
    precision: str = "float32"
    effort: int = 200
    blocks: int = 256


@dataclass(slots=True)
class Model:
    """The model at one micro-batch size, with a cutter for each setting of the memory knobs and of slow ranks."""

    size: int
    costs: LayerCosts
    kind: DeviceKind
    knobs: tuple[Memory, ...]
    search: Search
    polish: int
    cutters: dict[tuple[Memory, tuple[float, ...]], Cutter] = field(default_factory=dict)

    def cutter(self, memory: Memory, slow: tuple[float, ...]) -> Cutter:
        if (memory, slow) not in self.cutters:
            search = self.search
            self.cutters[memory, slow] = Cutter(self.costs, self.kind, slow, memory, search.blocks, self.polish)
        return self.cutters[memory, slow]

    def knobs_of(self, schedule: str) -> list[Memory]:
        """Those that the schedule takes."""
        return [memory for memory in self.knobs if FAMILIES[schedule].recomputes or not memory.recompute]

    def saving(self, memory: Memory) -> "Model":
        """The same with these knobs and no others."""
        return replace(self, knobs=(memory,))


@dataclass(frozen=True, slots=True)
class Even:
    """One way to divide the devices. shares: micro-batches of each pipeline."""

    model: Model
    name: str
    ranks: int
    shares: tuple[int, ...]
    chunks: int

    @property
    def bound_s(self) -> float:
        """What no cut can beat: the longest pipeline's work on its busiest rank, the heaviest layer at least."""
        costs = self.model.costs
        return max(self.shares) * max(costs.whole_s / self.ranks, costs.heaviest_s)

    @property
    def guess_s(self) -> float:
        """The bound with the fill and drain of a balanced 1F1B, and the all-reduce."""
        costs, kind = self.model.costs, self.model.kind
        fill = costs.whole_s * (self.ranks - 1) / self.ranks / self.chunks
        return self.bound_s + fill + all_reduce_s(costs.all_parameter_bytes / self.ranks, len(self.shares), kind.link)

    def plans(self) -> tuple[float, list[ParallelPlan]]:
        """A closed-form estimate of the best plan, and the plans, best guess first, with the first knobs that fit."""
        stages, most = self.ranks * self.chunks, max(self.shares)
        depth = {"eager-1f1b": 2, "zb-h2": 2, "gpipe": most}.get(self.name, 1)
        stage_rank = stage_ranks(self.name, self.ranks, self.chunks)
        slow = tuple(map(max, zip(*self.pipelines, strict=True))) if self.model.search.slow else ()
        of_stage = tuple(slow[rank] for rank in stage_rank) if slow else ()
        for memory in self.model.knobs_of(self.name):
            cuts = self.model.cutter(memory, of_stage).candidates(stages, most, depth)
            if cuts:
                plans = [make_plan(cut, self.shares, self.model.size, self.name, self.chunks, memory) for cut in cuts]
                times = durations(self.model.costs, plans[0], self.model.kind, slow)
                seconds = step_estimate_s(self.name, times, stage_rank, most)
                return seconds + max(times.finish_s), plans
        return float("inf"), []

    @property
    def pipelines(self) -> list[tuple[float, ...]]:
        return pipelines_of(self.model.search.slow, self.ranks, len(self.shares))


@dataclass(frozen=True, slots=True)
class Uneven:
    """Stages with different numbers of replicas, for few devices."""

    model: Model
    name: str
    devices: int
    microbatches: int

    @property
    def bound_s(self) -> float:
        return self.model.costs.whole_s * self.microbatches / self.devices

    @property
    def guess_s(self) -> float:
        return self.bound_s + self.model.costs.whole_s

    def plans(self) -> tuple[float, list[ParallelPlan]]:
        """The bound as an estimate, and one plan for each number of stages whose replicas differ."""
        for memory in self.model.knobs_of(self.name):
            cuts = self.model.cutter(memory, ()).replicated(self.devices, self.microbatches)
            plans = [
                uneven_plan(bounds, replicas, self.microbatches, self.model.size, self.name, memory)
                for bounds, replicas in cuts
                if len(set(replicas)) > 1 and self.microbatches >= max(replicas)
            ]
            if plans:
                return self.guess_s, plans
        return float("inf"), []
