"""The executors of one generation: of a step, of several without a drain, of an evaluation; each planned once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from policies.ir.instruction import Instruction, Program
from policies.ir.plan import ParallelPlan
from policies.pricing import split
from policies.schedules.lowering import orders_for
from worker.adapt.statistics import Route, routes_of
from worker.carry import Carrier
from worker.executor import Executor, Message, forward_only, message_tags
from worker.reduction import Reduction
from worker.shapes import Shape
from worker.stage import Stage
from worker.transport import Group


class Runs:
    """programs: of the plan, rank by rank. entering: shapes of what enters each stage but the first, slice by slice.

    routes: of the messages of so many steps, by tag.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        rank: int,
        programs: Sequence[Program],
        stages: Mapping[int, Stage],
        group: Group,
        entering: Mapping[int, Sequence[Shape]],
        device: torch.device,
        reductions: Mapping[int, Reduction],
    ) -> None:
        self._plan, self._rank, self._stages, self._group = plan, rank, stages, group
        self._entering, self._device, self._reductions = entering, device, reductions
        self._slices = 1 + max(instruction.chunk for program in programs for instruction in program)
        self._tags = message_tags(programs)
        self.routes: dict[int, tuple[Route, ...]] = {1: routes_of(programs, entering)}
        self._all: list[Executor] = []
        self._made = {plan.microbatches: self._executor(programs[rank], self._tags)}
        self.evaluation = self._executor(forward_only(programs[rank]), self._tags)

    def training(self, microbatches: int, carrier: Carrier | None) -> Executor:
        """For so many micro-batches without a drain in between, with layers that change ranks where there are such."""
        if carrier is not None:
            program, tags = self._lowered(microbatches)
            return self._executor(carrier.program(program), tags, carrier.run)
        if microbatches not in self._made:
            self._made[microbatches] = self._executor(*self._lowered(microbatches))
        return self._made[microbatches]

    def _executor(
        self, program: Program, tags: Mapping[Message, int], carry: Callable[[Instruction], None] | None = None
    ) -> Executor:
        made = Executor(
            program,
            self._stages,
            len(self._plan.stages) - 1,
            self._group,
            tags,
            self._entering,
            self._device,
            self._slices,
            self._reductions,
            carry,
        )
        self._all.append(made)
        return made

    def close(self) -> None:
        """Nothing of it runs again."""
        for executor in self._all:
            executor.close()

    def _lowered(self, microbatches: int) -> tuple[Program, Mapping[Message, int]]:
        """This rank's program and the messages' tags for so many micro-batches, shared out as in the plan.

        A message of a smaller step has the tag that it has in the plan's own.
        """
        plan = self._plan
        stages = tuple(replace(stage, shares=split(microbatches, stage.shares)) for stage in plan.stages)
        if microbatches == plan.microbatches:
            stages = plan.stages
        programs = orders_for(replace(plan, stages=stages, microbatches=microbatches))
        if microbatches <= plan.microbatches:
            return programs[self._rank], self._tags
        self.routes[microbatches // plan.microbatches] = routes_of(programs, self._entering)
        return programs[self._rank], message_tags(programs)
