"""A training member's life: import, build, join, load; then train through generations to an end."""

import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from scheduler.protocol.messages import Cause, Phase, Target
from worker import entrypoint
from worker.abilities import dtype_of, own_layers
from worker.adapt.adapter import Adapter
from worker.adapt.baseline import hand_on, taken_over
from worker.adapt.memory import Gauge
from worker.adapt.meter import Meter
from worker.adapt.part import Part
from worker.adapt.revision import Revise, Reviser, revised
from worker.carry import Carrier
from worker.change import Dropped, Standing, Switch, announce, join
from worker.checkpoint.loader import Loaded
from worker.checkpoint.saver import Saver
from worker.checkpoint.store import open_store
from worker.control import Control
from worker.convergence import Measuring
from worker.errors import Ended
from worker.generation import Generation
from worker.layer import Layer, build_layers, fingerprint
from worker.metrics import Metrics
from worker.pilot import Pilot
from worker.prepare import NotReady, prepare
from worker.progress import Progress
from worker.proposal import Proposal
from worker.rendezvous import Rendezvous
from worker.resume import Resume
from worker.sdk import PipelineJob
from worker.timelines import Timelines
from worker.trainer import Trainer
from worker.world import World, enter


def run(control: Control) -> Ended:
    """Live to a good end. Raises Ended for any other, and what the user's code raises."""
    target = control.target
    job = entrypoint.load(target.spec.job)
    control.report(phase=Phase.BUILDING, total_steps=job.total_steps, global_batch=job.global_batch)
    control.check_start()
    member = Member(control, job, target, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    present = member.start() if target.generation == 1 else member.join()
    while True:
        end = present.trainer.run()
        if isinstance(end, Ended):
            present.proposal.drop("the job has ended")
            member.part(present)
            return end
        present = member.revise(present, end.number) if isinstance(end, Revise) else member.change(present, end)


@dataclass(frozen=True)
class Present:
    """What runs now. model: its fingerprint. part: in adapting, where the job does."""

    generation: Generation
    layers: dict[int, Layer]
    trainer: Trainer
    proposal: Proposal
    model: str
    part: Part | None

    @property
    def arrived(self) -> dict[int, Layer] | None:
        """Layers that came here during the last step; None where nobody's did."""
        return self.trainer.carrier.arriving if self.trainer.carrier is not None else None


class Member:
    """One member of an attempt, over all its generations."""

    def __init__(self, control: Control, job: PipelineJob, target: Target, device: torch.device) -> None:
        self.control, self.job, self.device = control, job, device
        self.number, self.spec = target.member, target.spec
        self._target = target
        self._timeout_s = target.spec.start_timeout_s
        checkpoint = target.spec.job.checkpoint
        try:
            self._store = open_store(checkpoint.dir) if checkpoint is not None else None
        except ValueError as error:
            raise Ended(Cause.BAD_SPEC, str(error)) from None
        self._meter = Meter() if target.spec.job.adapt is not None and target.spec.profile is not None else None
        self._gauge = Gauge(device)

    # --- first generation --------------------------------------------------------------------------------------

    def start(self) -> Present:
        """Build, meet, agree on model and checkpoint."""
        target = self._target
        if target.plan is None or target.member not in target.ranks:
            raise Ended(Cause.BAD_SPEC, f"a training attempt needs a plan with member {target.member} in its ranks")
        plan = target.plan
        self._check_layers(plan.layer_count)
        rank = target.ranks.index(target.member)
        layers = build_layers(self.job, own_layers(plan, rank), self.device, dtype_of(plan), offload=plan.offload)
        self.control.report(phase=Phase.JOINING)
        world = enter(target, self.control.wait_for_store(self._timeout_s), self._timeout_s)
        meet = world.meet(self.control.check_start)
        model = self._agree_on_model(layers, meet, world)
        groups = world.groups("ranks", world.members, self.number, self.control.peer_lost, self._timeout_s)
        groups.watch()
        generation = Generation(
            self.job, world, self.number, layers, groups, meet, None, self.device, self._timeout_s, self._meter
        )
        self.control.report(phase=Phase.LOADING, fingerprint=model)
        loaded = self._load(layers, meet, generation, model)
        progress = Progress(step=loaded.step, save_begun=loaded.step, save_no=target.save_no)
        if loaded.manifest is not None:
            progress.saved = loaded.step
            progress.loss_scale, progress.good_steps = loaded.manifest.loss_scale, loaded.manifest.good_steps
            progress.first_evaluation = loaded.manifest.first_evaluation
            progress.last_evaluation = loaded.manifest.last_evaluation
        if generation.is_pilot:
            self.control.report(resumed_step=loaded.step)
        return self._present(generation, layers, progress, model, time.perf_counter())

    def _check_layers(self, planned: int) -> None:
        if planned != len(self.job.named_layers):
            raise Ended(
                Cause.PLAN_MISMATCH, f"the plan cuts {planned} layers, the model has {len(self.job.named_layers)}"
            )

    def _agree_on_model(self, layers: dict[int, Layer], meet: Rendezvous, world: World) -> str:
        """The model's fingerprint from all ranks' layers: the gang's barrier, too."""
        own = {index: layer.structure for index, layer in layers.items()}
        parts = meet.all("structure", self.number, world.members, own, self._timeout_s)
        everything = {int(index): structure for part in parts for index, structure in part.items()}
        found = fingerprint([everything[index] for index in sorted(everything)])
        if self.spec.fingerprint not in (None, found):
            raise Ended(
                Cause.PLAN_MISMATCH,
                f"the model's fingerprint is {found[:12]}, it was {self.spec.fingerprint[:12]} when it was probed: "
                "layer names, shapes or dtypes have changed",
            )
        return found

    def _load(self, layers: dict[int, Layer], meet: Rendezvous, generation: Generation, model: str) -> Loaded:
        checkpoint = self.spec.job.checkpoint
        if self._store is None or checkpoint is None:
            return Loaded()
        resume = Resume(self._target, self._store, self.job, self.control, generation, model, checkpoint.resume)
        return resume.load(list(layers.values()), meet, self._timeout_s)

    # --- later generations -------------------------------------------------------------------------------------

    def join(self) -> Present:
        """A newcomer: everything that can be done beside the others' training, then the switch."""
        target = self._target
        self.control.report(phase=Phase.JOINING)
        world = enter(target, self.control.wait_for_store(self._timeout_s), self._timeout_s)
        self._check_layers(world.plan.layer_count)
        standing = join(self.control, world, self._timeout_s)
        ready_at = time.perf_counter()
        try:
            switched = self._switch(world, standing).run({}, None, leads=False, before_leaving=lambda: None)
        except Dropped as dropped:
            raise Ended(Cause.STOPPED, f"generation {world.generation} was dropped: {dropped}") from None
        assert switched.generation is not None
        return self._present(switched.generation, switched.layers, standing.progress, standing.model, ready_at)

    def change(self, present: Present, number: int) -> Present:
        """Take over the next generation at this boundary, or go on with the present one.

        Raises:
            Ended: STOPPED in a member that has no place in the next one.
        """
        boundary = time.perf_counter()
        world = present.proposal.settle(number)
        old = present.generation
        standing = Standing(present.model, present.trainer.progress, old.plan, old.world.members, old.shapes)
        if old.is_pilot:
            announce(world, standing)
            if present.part is not None and present.part.adapter is not None:
                hand_on(world.meet(lambda: None), present.part.adapter.baseline, old.world.members)
        try:
            switched = self._switch(world, standing).run(
                present.layers, present.arrived, old.is_pilot, old.groups.unwatch
            )
        except Dropped as dropped:
            if old.is_pilot:
                self.control.dropped(world.generation, str(dropped))
            present.proposal.drop(str(dropped))
            present.trainer.go_on(boundary)
            return present
        if switched.generation is None:
            raise Ended(Cause.STOPPED, f"left: generation {world.generation} does without this member")
        return self._present(switched.generation, switched.layers, present.trainer.progress, present.model, boundary)

    def revise(self, present: Present, number: int) -> Present:
        """Go on with the next revision of this generation, or without it where one rank votes against.

        Raises:
            Ended: in doubt, or a peer is gone.
        """
        boundary = time.perf_counter()
        assert present.part is not None
        old, part, adapter = present.generation, present.part, present.part.adapter
        world = revised(old.world, number, part.reviser.plan(number))
        standing = Standing(present.model, present.trainer.progress, old.plan, old.world.members, old.shapes)
        try:
            switched = self._switch(world, standing).run(
                present.layers, present.arrived, old.is_pilot, old.groups.unwatch
            )
        except Dropped as dropped:
            if adapter is not None:
                adapter.switched(number, old.plan, str(dropped), time.perf_counter() - boundary)
            present.trainer.go_on(boundary)
            return present
        assert switched.generation is not None
        if adapter is not None:
            adapter.switched(number, world.plan, "", time.perf_counter() - boundary)
        return self._present(
            switched.generation, switched.layers, present.trainer.progress, present.model, boundary, present
        )

    def _carry(
        self, generation: Generation, layers: dict[int, Layer], proposal: Proposal, number: int
    ) -> Carrier | None:
        """Ready to take layers to the next generation beside a step, or None: nobody is, and there is no change."""
        new = proposal.settle(number)
        try:
            return prepare(self.job, self.number, generation.world, new, layers, self.device, self.control.check_peers)
        except NotReady as reason:
            if generation.is_pilot:
                self.control.dropped(number, str(reason))
            proposal.drop(str(reason))
            return None

    def _move(self, generation: Generation, layers: dict[int, Layer], part: Part | None, number: int) -> Carrier | None:
        """The same for a revision."""
        assert part is not None
        old, new = generation.world, revised(generation.world, number, part.reviser.plan(number))
        try:
            return prepare(self.job, self.number, old, new, layers, self.device, self.control.check_peers)
        except NotReady as reason:
            if part.adapter is not None:
                part.adapter.switched(number, generation.plan, str(reason), 0.0)
            return None

    def part(self, present: Present) -> None:
        """All members are at the end: hang up only when nobody takes that for a death any more."""
        self.control.close()
        world = present.generation.world
        world.meet(self.control.check_peers).all("end", self.number, world.members, True, self._timeout_s)
        present.generation.groups.unwatch()

    def _switch(self, world: World, standing: Standing) -> Switch:
        return Switch(self.control, self.job, self.number, world, standing, self.device, self._meter)

    def _present(
        self, generation: Generation, layers: dict[int, Layer], progress: Progress, model: str, ready_at: float,
        before: Present | None = None,
    ) -> Present:  # fmt: skip
        """Everything around a generation that is ready to train. before: what it is a revision of."""
        world, checkpoint = generation.world, self.spec.job.checkpoint
        saver = None
        if self._store is not None and checkpoint is not None:
            saver = Saver(
                self._store,
                lambda: world.connect_again(self._timeout_s),
                self._target.job,
                self._target.attempt,
                generation.rank,
                generation.plan.world_size,
                checkpoint.keep,
            )
        proposal = Proposal(self.control, world, generation.is_pilot) if before is None else before.proposal
        meet = world.meet(self.control.check_peers)
        part = self._part(generation, meet, before)
        revision = part.adapter.revision if part is not None and part.adapter is not None else 0
        self.control.report(
            phase=Phase.TRAINING, generation=world.generation, revision=revision, plan=generation.plan, live=True
        )
        pilot, metrics, folder = None, None, None
        if generation.is_pilot:
            every_s = checkpoint.every_s if checkpoint is not None else 0.0
            pilot = Pilot(
                self.control, proposal, progress, every_s, time.monotonic, saver is not None, part
            )
            folder = Path(os.environ["JCT_ATTEMPT_DIR"])
            metrics = Metrics(folder, self.job.log or (lambda values: None))
            self.control.report(
                step=progress.step,
                saved=progress.saved,
                first_evaluation=progress.first_evaluation,
                last_evaluation=progress.last_evaluation,
            )
        timelines = Timelines(meet, generation.rank, generation.plan.world_size, folder)
        carry = functools.partial(self._carry, generation, layers, proposal)
        move = functools.partial(self._move, generation, layers, part)
        after = self.spec.measure_after
        measuring = Measuring(generation, after, folder) if after is not None else None
        trainer = Trainer(
            generation, self.control, progress, saver, pilot, metrics, model, timelines, carry, ready_at, part, move,
            measuring,
        )  # fmt: skip
        return Present(generation, layers, trainer, proposal, model, part)

    def _part(self, generation: Generation, meet: Rendezvous, before: Present | None) -> Part | None:
        spec, profile = self.spec.job.adapt, self.spec.profile
        if generation.meter is None or spec is None or profile is None:
            if spec is not None and generation.is_pilot:
                self.control.note("this job does not adapt: nobody has measured its layers; leave out `profile`")
            return None
        adapter = before.part.adapter if before is not None and before.part is not None else None
        if adapter is None and generation.is_pilot:
            world = generation.world
            known = taken_over(meet, world.members) if world.generation > 1 else None
            adapter = Adapter(spec, profile, generation.plan, self.job.total_steps, self.control.note, known=known)
        reviser = Reviser(generation.world, meet, generation.rank)
        gauge, watermark = self._gauge, spec.watermark
        return Part(
            generation, generation.meter, reviser, gauge, adapter, watermark, lambda: self.control.slowdown
        )
