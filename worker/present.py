"""What runs now in a member: a generation with everything around it that trains, saves, adapts and changes it."""

import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.protocol.messages import Phase
from worker.adapt.adapter import Adapter
from worker.adapt.baseline import taken_over
from worker.adapt.part import Part
from worker.adapt.revision import Reviser, revised
from worker.carry import Carrier
from worker.change import Standing
from worker.checkpoint.saver import Saver
from worker.convergence import Measuring
from worker.generation import Generation
from worker.layer import Layer
from worker.metrics import Metrics
from worker.pilot import Pilot
from worker.prepare import NotReady, prepare
from worker.progress import Progress
from worker.proposal import Proposal
from worker.rendezvous import Rendezvous
from worker.setting import Setting
from worker.timelines import Timelines
from worker.trainer import Trainer


@dataclass(frozen=True)
class Present:
    """model: its fingerprint. part: in adapting, where the job does."""

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

    def release(self) -> list[Any]:
        """As `Generation.release`, with what carried layers beside its last step."""
        carrier = self.trainer.carrier
        return self.generation.release() + ([carrier.release()] if carrier is not None else [])

    @property
    def standing(self) -> Standing:
        old = self.generation
        return Standing(self.model, self.trainer.progress, old.plan, old.world.members, old.shapes)


def surrounded(
    own: Setting, generation: Generation, layers: dict[int, Layer], progress: Progress, model: str, ready_at: float,
    before: Present | None = None,
) -> Present:  # fmt: skip
    """A generation that is ready to train, and what belongs around it. before: what it is a revision of."""
    world, checkpoint = generation.world, own.spec.job.checkpoint
    saver = _saver(own, generation)
    proposal = Proposal(own.control, world, generation.is_pilot) if before is None else before.proposal
    meet = world.meet(own.control.check_peers)
    part = _part(own, generation, meet, before)
    revision = part.adapter.revision if part is not None and part.adapter is not None else 0
    own.control.report(
        phase=Phase.TRAINING, generation=world.generation, revision=revision, plan=generation.plan, live=True
    )
    pilot, metrics, folder = None, None, None
    if generation.is_pilot:
        every_s = checkpoint.every_s if checkpoint is not None else 0.0
        pilot = Pilot(own.control, proposal, progress, every_s, time.monotonic, saver is not None, part)
        folder = Path(os.environ["JCT_ATTEMPT_DIR"])
        metrics = Metrics(folder, own.job.log or (lambda values: None))
        own.control.report(
            step=progress.step,
            saved=progress.saved,
            first_evaluation=progress.first_evaluation,
            last_evaluation=progress.last_evaluation,
        )
    timelines = Timelines(meet, generation.rank, generation.plan.world_size, folder)
    carry = functools.partial(_carry, own, generation, layers, proposal)
    move = functools.partial(_move, own, generation, layers, part)
    after = own.spec.measure_after
    measuring = Measuring(generation, after, folder) if after is not None else None
    trainer = Trainer(
        generation, own.control, progress, saver, pilot, metrics, model, timelines, carry, ready_at, part, move,
        measuring,
    )  # fmt: skip
    return Present(generation, layers, trainer, proposal, model, part)


def _saver(own: Setting, generation: Generation) -> Saver | None:
    checkpoint, target, world = own.spec.job.checkpoint, own.target, generation.world
    if own.store is None or checkpoint is None:
        return None
    return Saver(
        own.store, lambda: world.connect_again(own.timeout_s), target.job, target.attempt, generation.rank,
        generation.plan.world_size, checkpoint.keep,
    )  # fmt: skip


def _part(own: Setting, generation: Generation, meet: Rendezvous, before: Present | None) -> Part | None:
    spec, profile = own.spec.job.adapt, own.spec.profile
    if generation.meter is None or spec is None or profile is None:
        if spec is not None and generation.is_pilot:
            own.control.note("this job does not adapt: nobody has measured its layers; leave out `profile`")
        return None
    adapter = before.part.adapter if before is not None and before.part is not None else None
    if adapter is None and generation.is_pilot:
        world = generation.world
        known = taken_over(meet, world.members) if world.generation > 1 else None
        adapter = Adapter(spec, profile, generation.plan, own.job.total_steps, own.control.note, known=known)
    reviser = Reviser(generation.world, meet, generation.rank)
    return Part(
        generation, generation.meter, reviser, own.gauge, adapter, spec.watermark, lambda: own.control.slowdown
    )


def _carry(
    own: Setting, generation: Generation, layers: dict[int, Layer], proposal: Proposal, number: int
) -> Carrier | None:
    """Ready to take layers to the next generation beside a step, or None: nobody is, and there is no change."""
    new = proposal.settle(number)
    try:
        return prepare(own.job, own.number, generation.world, new, layers, own.device, own.control.check_peers)
    except NotReady as reason:
        if generation.is_pilot:
            own.control.dropped(number, str(reason))
        proposal.drop(str(reason))
        return None


def _move(
    own: Setting, generation: Generation, layers: dict[int, Layer], part: Part | None, number: int
) -> Carrier | None:
    """The same for a revision."""
    assert part is not None
    old, new = generation.world, revised(generation.world, number, part.reviser.plan(number))
    try:
        return prepare(own.job, own.number, old, new, layers, own.device, own.control.check_peers)
    except NotReady as reason:
        if part.adapter is not None:
            part.adapter.switched(number, generation.plan, str(reason), 0.0)
        return None
