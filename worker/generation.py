"""One generation at work in one rank: its groups, its stages over the job's layers, its programs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from policies.ir.instruction import Op, digest
from policies.ir.plan import ParallelPlan
from policies.ir.timeline import Span
from policies.traps import Communication, Way
from scheduler.protocol.messages import Cause
from worker.abilities import AUTOCAST, check_rampup, dtype_of, is_synchronous, programs_of
from worker.adapt.meter import Meter
from worker.batches import Batches, Window
from worker.carry import Carrier
from worker.errors import Ended
from worker.executor import Source, message_tags
from worker.layer import Layer, tied_parameters
from worker.reduction import Reduction
from worker.rendezvous import Rendezvous
from worker.runs import Runs
from worker.sdk import PipelineJob
from worker.shapes import LayerShapes, find_shapes
from worker.slicing import TIME, SlicedSource, SlicedStage, slice_lengths
from worker.stage import Stage
from worker.ties import Ties
from worker.transport import Groups
from worker.versions import LEAST_VERSIONS, Rate, VersionedStage
from worker.world import World


class Generation:
    """Plan, ranks and layers joined into something that runs steps.

    Raises:
        Ended: a plan this worker cannot run, ranks that disagree about it, or a peer that is gone.
    """

    def __init__(
        self,
        job: PipelineJob,
        world: World,
        member: int,
        layers: Mapping[int, Layer],
        groups: Groups,
        meet: Rendezvous,
        shapes: LayerShapes | None,
        device: torch.device,
        timeout_s: float,
        meter: Meter | None = None,
    ) -> None:
        """layers: this rank's. shapes: None to find them by a trial. meter: times and stamps what runs.

        All ranks come here together.
        """
        plan, rank = world.plan, world.members.index(member)
        self.job, self.world, self.plan, self.rank, self.groups = job, world, plan, rank, groups
        self._device, self.meter = device, meter
        self.layers = [layers[index] for index in sorted(layers)]
        here = [index for index, stage in enumerate(plan.stages) if rank in stage.ranks]
        self.asynchronous = not is_synchronous(plan)
        self._last = len(plan.stages) - 1
        self.batches = self._batches(job, plan)
        programs = programs_of(plan)
        self._slices = 1 + max(instruction.chunk for program in programs for instruction in program)
        self._lengths = self._slice_lengths()
        self._stages = {index: self._stage(index, layers) for index in here}
        self.splits = any(do.op is Op.BACKWARD_WEIGHT for program in programs for do in program)
        self._reductions = {index: self._reduction(index) for index in here if len(plan.stages[index].ranks) > 1}
        agreed = meet.all("digest", rank, range(plan.world_size), digest(programs), timeout_s)
        if len(set(agreed)) > 1:
            raise Ended(
                Cause.START_FAILED, f"ranks were given different programs: {agreed}; the plan must be one value"
            )
        if self.splits:
            for stage_here in self._stages.values():
                stage_here.split_backward()
        if shapes is None:
            inputs = self.batches.inputs(0, 0) if 0 in self._stages else None
            shapes = find_shapes(plan, rank, layers, inputs, AUTOCAST.get(plan.precision), meet, timeout_s)
        self.shapes = shapes
        self._ties = Ties(tied_parameters(job), plan, rank, layers, groups.world, len(message_tags(programs)))
        entering = {
            index: [shapes[stage.first - 1].slice(self._lengths, i) for i in range(self._slices)]
            for index, stage in enumerate(plan.stages)
            if index > 0
        }
        group = groups.world if meter is None else meter.group(groups.world)
        self._runs = Runs(plan, rank, programs, self._stages, group, entering, device, self._reductions)
        self.routes = self._runs.routes
        """Of the messages of so many steps without a drain, by tag; for a meter."""

    def _stage(self, index: int, layers: Mapping[int, Layer]) -> Stage:
        plan, job = self.plan, self.job
        own = [layers[layer] for layer in plan.stages[index].layers]
        loss = job.loss if index == self._last else None
        autocast = AUTOCAST.get(plan.precision)
        if self.asynchronous:
            if job.clip_norm is not None or job.ties:
                what = "clip_norm" if job.clip_norm is not None else "ties"
                raise Ended(Cause.NOT_SUPPORTED, f"{what} with {plan.schedule!r}: its stages step by themselves")
            delayed = plan.schedule == "2bw"
            return VersionedStage(own, loss, job.seed, self._device, autocast, plan.microbatches, delayed)
        if self._slices > 1:
            return SlicedStage(own, loss, job.seed, self._device, autocast, self._lengths)
        return Stage(own, loss, job.seed, self._device, plan.stages[index].recompute, autocast)

    def _reduction(self, index: int) -> Reduction:
        """Stages with the same replicas share their group: a later stage's last backward comes first on every rank,
        unless weight gradients are put off."""
        name = f"stage{index}" if self.splits else "replicas"
        group = self.groups.among(name, self.plan.stages[index].ranks)
        return Reduction(group, self._stages[index].layers)

    def _slice_lengths(self) -> list[int]:
        """Tokens of each slice; nothing where sequences are whole."""
        if self._slices == 1:
            return []
        inputs = self.batches.inputs(0, 0)
        if not isinstance(inputs, Tensor) or inputs.dim() < 2:
            raise Ended(Cause.NOT_SUPPORTED, f"slicing needs inputs with tokens along dimension {TIME}")
        return slice_lengths(inputs.shape[TIME], self._slices)

    def _source(self, source: Source) -> Source:
        source = self.meter.source(source) if self.meter is not None else source
        return SlicedSource(source, self._lengths) if self._slices > 1 else source

    def _share(self, unit: int) -> float:
        """What a unit's mean loss counts in its micro-batch's."""
        return self._lengths[unit % self._slices] / sum(self._lengths) if self._slices > 1 else 1.0

    def units(self, step: int, steps: int) -> int:
        """What every stage accumulates in `steps` steps from `step`: micro-batches, slice by slice."""
        return steps * self.microbatches_at(step) * self._slices

    def microbatches_at(self, step: int) -> int:
        """Of one step; fewer than the plan's while the batch ramps up."""
        return self.job.batch_at(step) // self.plan.microbatch_size

    def relieve(self) -> None:
        """Memory is short: weight versions that are not used next go to host memory, from now on. On a CPU that is what
        is short."""
        if self._device.type == "cpu":
            return
        for stage in self._stages.values():
            if isinstance(stage, VersionedStage):
                stage.resident = LEAST_VERSIONS

    def release(self) -> list[Any]:
        """It never runs again, and lets its layers go. Its connections: they are hung up once nobody holds them."""
        self._runs.close()
        return self.groups.release()

    @property
    def held(self) -> tuple[int, ...]:
        """Stages of this rank."""
        return tuple(self._stages)

    @property
    def is_pilot(self) -> bool:
        return self.rank == self.plan.pilot_rank

    def saved_here(self) -> list[Layer]:
        """The layers that this rank writes to a checkpoint: a stage's replicas, which are equal, share the work."""
        mine = []
        for index in self._stages:
            ranks = self.plan.stages[index].ranks
            mine += [layer for i, layer in enumerate(self._stages[index].layers) if ranks[i % len(ranks)] == self.rank]
        return mine

    @property
    def width(self) -> int:
        """Values that one step gives to the exchange: each layer's squared norm, then each micro-batch's loss."""
        return self.plan.layer_count + self.plan.microbatches

    def train(
        self,
        step: int,
        steps: int,
        rate: Rate,
        spans: list[Span] | None = None,
        carrier: Carrier | None = None,
        loss_scale: float = 1.0,
    ) -> dict[int, float]:
        """Forward and backward of `steps` steps from `step`; returns this rank's part of steps x width values.

        Synchronous: one step; gradients are left in the parameters, summed over micro-batches and replicas.
        Asynchronous: a window; stages have stepped by themselves, at `rate`. spans: takes what ran when. carrier: of
        layers that change ranks beside a synchronous step. loss_scale: of gradients, and squared of norms.
        """
        count, layers, width = self.microbatches_at(step), self.plan.layer_count, self.width
        executor = self._runs.training(steps * count, carrier)
        for stage in self._stages.values():
            if isinstance(stage, VersionedStage):
                stage.begin(step, rate)
        scale = 1.0 if self.plan.schedule == "async-1f1b" else loss_scale / count
        source = self._source(Window(self.batches, step, count))
        if spans is None:
            losses = executor.run(source, step, scale)
        else:
            losses = executor.run_traced(source, step, scale, self.rank, spans)
        of_microbatch = self._by_microbatch(losses)
        values = {width * (i // count) + layers + i % count: loss for i, loss in of_microbatch.items()}
        values |= self._norms()
        if carrier is not None:
            carrier.hand_over()
        return values

    def _by_microbatch(self, losses: Mapping[int, Tensor]) -> dict[int, float]:
        """Units' losses put together, slice after slice."""
        found: dict[int, float] = {}
        for unit in sorted(losses):
            microbatch = unit // self._slices
            found[microbatch] = found.get(microbatch, 0.0) + self._share(unit) * float(losses[unit])
        return found

    def _norms(self) -> dict[int, float]:
        values: dict[int, float] = {}
        if not self.asynchronous:
            self._sum_gradients()
            return values | self.gradient_norms()
        for stage in self._stages.values():
            assert isinstance(stage, VersionedStage)
            values |= {self.width * step + layer: norm for (step, layer), norm in stage.norms.items()}
        return values

    def _sum_gradients(self) -> None:
        for reduction in self._reductions.values():
            reduction.finish()
        self._ties.sum_gradients()

    def sums(self) -> list[Communication]:
        """Of gradients over replicas, in the last step, on time.perf_counter's clock."""
        return [
            Communication(self.rank, Way.SUM, self.plan.stages[index].ranks, size, start_s, end_s)
            for index, reduction in self._reductions.items()
            for size, start_s, end_s in reduction.passed
        ]

    def evaluate(self, batch: int, source: Batches) -> dict[int, float]:
        """Losses held here of one global batch, without gradients."""
        for stage in self._stages.values():
            stage.train(False)
        with torch.no_grad():
            losses = self._runs.evaluation.run(self._source(source), batch, 1 / self.plan.microbatches)
        for stage in self._stages.values():
            stage.train(True)
        return self._by_microbatch(losses)

    @property
    def stages(self) -> Mapping[int, Stage]:
        """Those of this rank."""
        return self._stages

    def counted_layers(self) -> list[Layer]:
        """The layers that this rank answers for: replica 0's, so that every layer counts once."""
        counted = [index for index in self._stages if self.plan.stages[index].ranks[0] == self.rank]
        return [layer for index in counted for layer in self._stages[index].layers]

    def gradient_norms(self) -> dict[int, float]:
        """Squared norm of each layer that this rank answers for."""
        return {layer.index: layer.squared_gradient_norm() for layer in self.counted_layers()}

    def exchange(self, values: Mapping[int, float], size: int) -> list[float]:
        """Sum sparse vectors of `size` over all ranks. Each place is set by one rank at most, so the sum is exact."""
        vector = torch.zeros(size, dtype=torch.float64)
        for place, value in values.items():
            vector[place] = value
        self.groups.world.sum(vector)
        return vector.tolist()

    def validation_batches(self) -> Batches | None:
        validation = self.job.validation
        if validation is None:
            return None
        size, seed, dtype = self.plan.microbatch_size, self.job.seed, self.batches.dtype
        whole = self.plan.global_batch
        return Batches(validation.data, seed, False, lambda batch: batch * whole, size, self._device, dtype)

    def _batches(self, job: PipelineJob, plan: ParallelPlan) -> Batches:
        if plan.global_batch != job.global_batch:
            raise Ended(
                Cause.PLAN_MISMATCH,
                f"the plan's {plan.microbatches} micro-batches of {plan.microbatch_size} are not the job's global "
                f"batch of {job.global_batch}",
            )
        check_rampup(job.batch_rampup, plan)
        size = plan.microbatch_size
        return Batches(job.data, job.seed, job.shuffle, job.samples_before, size, self._device, dtype_of(plan))
