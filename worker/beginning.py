"""A training member's first generation: build, meet, agree on model and checkpoint, load."""

from dataclasses import dataclass

from scheduler.protocol.messages import Cause, Phase
from worker.abilities import dtype_of, own_layers
from worker.checkpoint.loader import Loaded
from worker.errors import Ended
from worker.generation import Generation
from worker.layer import Layer, build_layers, fingerprint
from worker.progress import Progress
from worker.rendezvous import Rendezvous
from worker.resume import Resume
from worker.setting import Setting
from worker.world import World, enter


@dataclass(frozen=True)
class Begun:
    """Ready to train. model: its fingerprint."""

    generation: Generation
    layers: dict[int, Layer]
    progress: Progress
    model: str


def begin(own: Setting) -> Begun:
    """All members of the attempt's first generation come here.

    Raises:
        Ended: a plan or a checkpoint of something else, a layer that cannot be built, or a peer that is gone.
    """
    target, control, timeout_s = own.target, own.control, own.timeout_s
    if target.plan is None or own.number not in target.ranks:
        raise Ended(Cause.BAD_SPEC, f"a training attempt needs a plan with member {own.number} in its ranks")
    plan = target.plan
    own.check_layers(plan)
    rank = target.ranks.index(own.number)
    layers = build_layers(own.job, own_layers(plan, rank), own.device, dtype_of(plan), offload=plan.offload)
    control.report(phase=Phase.JOINING)
    world = enter(target, control.wait_for_store(timeout_s), timeout_s)
    meet = world.meet(control.check_start)
    model = _agree_on_model(own, layers, meet, world)
    groups = world.groups("ranks", world.members, own.number, control.peer_lost, timeout_s)
    groups.watch()
    generation = Generation(own.job, world, own.number, layers, groups, meet, None, own.device, timeout_s, own.meter)
    control.report(phase=Phase.LOADING, fingerprint=model)
    loaded = _load(own, layers, meet, generation, model)
    if generation.is_pilot:
        control.report(resumed_step=loaded.step)
    return Begun(generation, layers, _progress(loaded, target.save_no), model)


def _agree_on_model(own: Setting, layers: dict[int, Layer], meet: Rendezvous, world: World) -> str:
    """The model's fingerprint from all ranks' layers: the gang's barrier, too."""
    structures = {index: layer.structure for index, layer in layers.items()}
    parts = meet.all("structure", own.number, world.members, structures, own.timeout_s)
    everything = {int(index): structure for part in parts for index, structure in part.items()}
    found = fingerprint([everything[index] for index in sorted(everything)])
    if own.spec.fingerprint not in (None, found):
        raise Ended(
            Cause.PLAN_MISMATCH,
            f"the model's fingerprint is {found[:12]}, it was {own.spec.fingerprint[:12]} when it was probed: "
            "layer names, shapes or dtypes have changed",
        )
    return found


def _load(own: Setting, layers: dict[int, Layer], meet: Rendezvous, generation: Generation, model: str) -> Loaded:
    checkpoint = own.spec.job.checkpoint
    if own.store is None or checkpoint is None:
        return Loaded()
    resume = Resume(own.target, own.store, own.job, own.control, generation, model, checkpoint.resume)
    return resume.load(list(layers.values()), meet, own.timeout_s)


def _progress(loaded: Loaded, save_no: int) -> Progress:
    progress = Progress(step=loaded.step, save_begun=loaded.step, save_no=save_no)
    if loaded.manifest is not None:
        progress.saved = loaded.step
        progress.loss_scale, progress.good_steps = loaded.manifest.loss_scale, loaded.manifest.good_steps
        progress.first_evaluation = loaded.manifest.first_evaluation
        progress.last_evaluation = loaded.manifest.last_evaluation
    return progress
