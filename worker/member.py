"""A member: one process on one device. Import, build, join, load, train, and one last word."""

import functools
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause, Phase, Target
from worker import entrypoint, probe
from worker.checkpoint import catalogue
from worker.checkpoint.directory import Directory
from worker.checkpoint.loader import Loaded, Loader, candidates
from worker.checkpoint.manifest import Manifest
from worker.checkpoint.saver import Saver
from worker.control import Control
from worker.errors import Ended
from worker.generation import Generation, dtype_of, own_layers
from worker.layer import Layer, build_layers, fingerprint
from worker.metrics import Metrics
from worker.pilot import Pilot
from worker.rendezvous import Rendezvous
from worker.sdk import PipelineJob
from worker.trainer import Progress, Trainer
from worker.transport import Groups, connect_store


def main(line: socket.socket) -> int:
    """Run the member that the first Target on the line describes; returns the exit code."""
    control = Control(line)
    signal.signal(signal.Signals[control.target.spec.job.signal], _heard)
    torch.set_num_threads(1)
    end = _guarded(control)
    control.last_word(end)
    print(
        f"jctd: member {control.target.member} ends: {end.cause}{': ' if end.message else ''}{end.message}", flush=True
    )
    return end.exit_code


def _heard(_number: int, _frame: object) -> None:
    """The job's signal tells the user's code of a stop, if it sets a handler of its own; ours only must not die of it.

    The pilot learns of the stop from its Target and acts at the step boundary.
    """


def _guarded(control: Control) -> Ended:
    """The member's life with every exception turned into an end."""
    try:
        if control.target.spec.kind == "probe":
            return probe.run(control)
        return _train(control)
    except Ended as end:
        return end
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        return Ended(Cause.USER_EXCEPTION, f"the user's code called sys.exit({error.code!r})", code or 1)
    except BaseException as error:
        return entrypoint.user_exception(error, "training raised")


def _train(control: Control) -> Ended:
    target = control.target
    plan, rank = _place(target)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    timeout_s = target.spec.start_timeout_s
    job = entrypoint.load(target.spec.job)
    control.report(phase=Phase.BUILDING, plan=plan, total_steps=job.total_steps, global_batch=job.global_batch)
    control.check_start()
    if plan.layer_count != len(job.named_layers):
        raise Ended(
            Cause.PLAN_MISMATCH, f"the plan cuts {plan.layer_count} layers, the model has {len(job.named_layers)}"
        )
    layers = build_layers(job, own_layers(plan, rank), device, dtype_of(plan))
    control.report(phase=Phase.JOINING)
    address = control.wait_for_store(timeout_s)
    prefix = f"{target.spec.nonce}/{target.generation}"
    store = connect_store(address, timeout_s)
    meet = Rendezvous(store, prefix, control.check_start)
    model = _agree_on_model(target, layers, meet, rank, plan, timeout_s)
    host = address.rpartition(":")[0]
    groups = Groups(store, prefix, rank, plan.world_size, host, control.peer_lost)
    generation = Generation(job, plan, rank, layers, groups, meet, device, timeout_s)
    groups.watch()
    control.report(phase=Phase.LOADING, fingerprint=model)
    directory = Directory(target.spec.job.checkpoint.dir) if target.spec.job.checkpoint is not None else None
    loaded = _load(control, directory, job, layers, meet, generation, model)
    saver = None
    if directory is not None:
        assert target.spec.job.checkpoint is not None
        connect = functools.partial(_connect, address, prefix, timeout_s)
        saver = Saver(
            directory, connect, target.job, target.attempt, rank, plan.world_size, target.spec.job.checkpoint.keep
        )
    end = _trainer(control, generation, loaded, saver, model).run()
    control.close()
    Rendezvous(store, prefix, control.check_peers).all("end", rank, plan.world_size, True, timeout_s)
    groups.unwatch()
    return end


def _place(target: Target) -> tuple[ParallelPlan, int]:
    """The plan and this member's rank in it."""
    if target.plan is None:
        raise Ended(Cause.BAD_SPEC, "a training attempt needs a plan")
    if target.generation != 1:
        raise Ended(Cause.NOT_SUPPORTED, f"generation {target.generation}: live changes are not supported yet")
    if target.member not in target.ranks or len(target.ranks) != target.plan.world_size:
        raise Ended(
            Cause.PLAN_MISMATCH,
            f"ranks {target.ranks} do not fit member {target.member} and a plan of {target.plan.world_size} ranks",
        )
    return target.plan, target.ranks.index(target.member)


def _agree_on_model(
    target: Target, layers: dict[int, Layer], meet: Rendezvous, rank: int, plan: ParallelPlan, timeout_s: float
) -> str:
    """The model's fingerprint from all ranks' layers: the gang's barrier, too."""
    own = {index: layer.structure for index, layer in layers.items()}
    everything = {
        int(index): structure
        for part in meet.all("structure", rank, plan.world_size, own, timeout_s)
        for index, structure in part.items()
    }
    found = fingerprint([everything[index] for index in sorted(everything)])
    if target.spec.fingerprint not in (None, found):
        raise Ended(
            Cause.PLAN_MISMATCH,
            f"the model's fingerprint is {found[:12]}, it was {target.spec.fingerprint[:12]} when it "
            "was probed: layer names, shapes or dtypes have changed",
        )
    return found


def _load(
    control: Control,
    directory: Directory | None,
    job: PipelineJob,
    layers: dict[int, Layer],
    meet: Rendezvous,
    generation: Generation,
    model: str,
) -> Loaded:
    target = control.target
    spec = target.spec.job.checkpoint
    if directory is None or spec is None:
        return Loaded()

    def accept(found: Manifest) -> None:
        if found.fingerprint != model:
            raise Ended(
                Cause.CHECKPOINT_BROKEN,
                f"the checkpoint of step {found.step} in {directory.root} is of another model "
                f"({found.fingerprint[:12]}, not {model[:12]}); use one checkpoint directory a model",
            )
        if found.plan.precision != generation.plan.precision:
            raise Ended(
                Cause.CHECKPOINT_BROKEN,
                f"the checkpoint of step {found.step} in {directory.root} is in "
                f"{found.plan.precision}, the plan asks for {generation.plan.precision}",
            )
        if found.global_batch != job.global_batch or found.rng.seed != job.seed:
            raise Ended(
                Cause.CHECKPOINT_BROKEN,
                f"the checkpoint of step {found.step} in {directory.root} was trained with global "
                f"batch {found.global_batch} and seed {found.rng.seed}, not {job.global_batch} and {job.seed}; samples "
                "would be lost or doubled",
            )

    loader = Loader(
        directory,
        list(layers.values()),
        meet,
        generation.rank,
        generation.plan.world_size,
        target.spec.start_timeout_s,
        accept,
    )
    if not generation.is_pilot:
        return loader.follow()
    try:
        catalogue.claim(directory, target.job, target.attempt, target.spec.nonce)
    except OSError as error:
        control.note(f"checkpoint directory {directory.root} cannot be written: {error.strerror}")
    loaded = loader.lead(candidates(directory, spec.resume, target.job))
    if loaded.lost:
        control.note(loaded.lost)
    return loaded


def _connect(address: str, prefix: str, timeout_s: float) -> Rendezvous:
    return Rendezvous(connect_store(address, timeout_s), prefix, lambda: None)


def _trainer(control: Control, generation: Generation, loaded: Loaded, saver: Saver | None, model: str) -> Trainer:
    progress = Progress(step=loaded.step)
    if loaded.manifest is not None:
        progress.saved = loaded.step
        progress.first_evaluation = loaded.manifest.first_evaluation
        progress.last_evaluation = loaded.manifest.last_evaluation
    if not generation.is_pilot:
        control.report(phase=Phase.TRAINING)
        return Trainer(generation, control, progress, saver, None, None, model)
    checkpoint = control.target.spec.job.checkpoint
    every_s = checkpoint.every_s if checkpoint is not None else 0.0
    pilot = Pilot(control, every_s, time.monotonic, saver is not None)
    folder = os.environ.get("JCT_ATTEMPT_DIR")
    metrics = Metrics(Path(folder)) if folder else None
    control.report(
        resumed_step=loaded.step,
        step=loaded.step,
        saved=progress.saved,
        first_evaluation=progress.first_evaluation,
        last_evaluation=progress.last_evaluation,
    )
    return Trainer(generation, control, progress, saver, pilot, metrics, model)


if __name__ == "__main__":
    # A cold member, exec'd by the shim where a fork would not do: its line is an inherited descriptor.
    code = main(socket.socket(fileno=int(sys.argv[1])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
