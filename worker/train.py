"""`jct train`: one job on this machine, without daemon or agent, with scripted changes of shape."""

import argparse
import contextlib
import functools
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from policies.cost import profile_at
from policies.model.profile import ModelProfile
from scheduler.protocol.messages import Cause, Report
from scheduler.protocol.spec import AttemptSpec, CheckpointSpec, JobSpec
from worker import convergence, places, processes
from worker.checkpoint import catalogue
from worker.checkpoint.store import is_url, open_store
from worker.launcher import Launched, fork_shim, start_shim
from worker.metrics import FILE_NAME
from worker.scripted import (
    BadRequest,
    Move,
    Script,
    Shape,
    in_reach,
    moved,
    parser,
    planned,
    read_adapt,
    read_script,
    with_microbatches,
)
from worker.shim import import_ahead

BAD_USAGE = 2
WAIT_S = 1e9
POLL_S = 0.05
END_S = 30.0


def main(arguments: list[str]) -> int:
    """0 when it was trained to its end, 1 when not, 2 for a request that cannot be, 128 + n after signal n."""
    options = parser().parse_args(arguments)
    if options.spec == "-":  # from `jct train`: if that is killed, nobody sees or ends the training any more
        processes.tell_end_of_parent(signal.SIGINT)
        if options.parent not in (None, os.getppid()):  # it was killed while this process imported what it needs
            return 128 + signal.SIGINT
    data = sys.stdin.buffer.read() if options.spec == "-" else Path(options.spec).read_bytes()
    job = msgspec.json.decode(data, type=JobSpec)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if options.steps is not None:
        job = msgspec.structs.replace(job, total_steps=options.steps)
    if options.checkpoint is not None:
        kept = job.checkpoint or CheckpointSpec(dir="")
        directory = options.checkpoint if is_url(options.checkpoint) else str(Path(options.checkpoint).absolute())
        job = msgspec.structs.replace(job, checkpoint=msgspec.structs.replace(kept, dir=directory))
    try:
        job = msgspec.structs.replace(job, adapt=read_adapt(options.adapt, job.adapt))
        shape = Shape(
            options.stages, options.replicas, options.schedule, options.microbatches, options.slices,
            options.recompute, options.offload,
        )  # fmt: skip
        script = read_script(shape, options.change, options.migrate)
        _check_places(options)
        with tempfile.TemporaryDirectory(prefix="jct-train-") as folder:
            training = _Training(
                Path(folder), job, script, options.dtype, options.cut, options.metrics, on_gpu=options.device == "cuda"
            )
            if options.profile is not None:
                return training.measure(options.profile, options.measure_after)
            return training.run()
    except BadRequest as error:
        print(f"jct train: {error}", file=sys.stderr)
        return BAD_USAGE


def _check_places(options: argparse.Namespace) -> None:
    """Raises BadRequest where what is asked for could not be written."""
    try:
        for option in ("metrics", "profile"):
            if getattr(options, option) is not None:
                places.check_file(f"--{option}", getattr(options, option))
        if options.checkpoint is not None:
            places.check_store("--checkpoint", open_store(options.checkpoint))
    except ValueError as error:
        raise BadRequest(str(error)) from None


class _Training:
    """A probe for the layers' times, then one attempt with its script."""

    def __init__(
        self,
        folder: Path,
        job: JobSpec,
        script: Script,
        precision: str,
        cut: str,
        metrics: Path | None,
        *,
        on_gpu: bool,
    ) -> None:
        self._folder, self._job, self._script, self._precision = folder, job, script, precision
        self._cut, self._metrics = cut, metrics
        self._on_gpu = on_gpu
        self._told, self._said = 0, ""
        self._resumed = self._signal = 0
        self._measure_after: int | None = None

    def run(self) -> int:
        job, attempt = self._next_attempt()
        import_ahead()
        probe = self._launch(0, 1, "probe", None)
        report = self._result_of(probe)
        if report.cause is not Cause.PROBE_DONE:
            return _failed(probe, report)
        assert report.global_batch is not None
        self._profiles, self._global_batch = report.profiles, report.global_batch
        assert report.total_steps is not None
        self._total_steps = report.total_steps
        self._check(report.total_steps)
        script = with_microbatches(self._script, report.global_batch)
        plans = [self._plan(script.shape)]
        for _, change in script.changes:
            plans.append(moved(plans[-1], change) if isinstance(change, Move) else self._plan(change))
        with self._sink() as sink:  # before signals are taken over: a pipe without a reader may wait for ever
            launched = self._launch(job, attempt, "train", plans[0])
            self._train(launched, plans[1:], sink)
        good = all(one.cause in (Cause.FINISHED, Cause.STOPPED) for one in launched.reports.values())
        if good and self._signal and launched.pilot.cause is Cause.STOPPED:
            print(f"jct train: {_stopped(launched.pilot, self._job.checkpoint)}", flush=True)
            return 128 + self._signal
        return 0 if good and launched.pilot.cause is Cause.FINISHED else _failed(launched, launched.pilot)

    def _sink(self) -> places.Sink:
        """Raises BadRequest."""
        try:
            return places.Sink("--metrics", self._metrics or Path(os.devnull))
        except OSError as error:
            raise BadRequest(f"--metrics {self._metrics}: {error.strerror}; name a file that can be written") from None

    def _train(self, launched: Launched, changes: Sequence[Any], sink: places.Sink) -> None:
        """Up to the end of all members, whatever it is. changes: plans to come."""
        self._trained = launched.folder

        def interrupted(number: int, _frame: object) -> None:
            self._signal = number
            launched.stop(grace_s=self._job.grace_s, why="interrupted")

        for number in processes.endings():
            signal.signal(number, interrupted)
        with _stopped_at_an_error(launched, self._job.grace_s):
            for plan in changes:
                self._until(launched, sink, Launched.is_running)
                if launched.is_gone():
                    break
                launched.change(plan)
            self._until(launched, sink, Launched.is_gone)
        launched.hang_up()

    def measure(self, file: Path, after: int) -> int:
        """As `run`, measuring convergence from step `after` on; the probe's profile and the figures go to `file`."""
        if self._script.changes:
            raise BadRequest("--profile measures one shape; leave out --change and --migrate")
        self._measure_after = after
        code = self.run()
        if code:
            return code
        found = self._trained / convergence.FILE_NAME
        if not found.exists():
            raise BadRequest(_too_short(after))
        profile = self._profiles_for(self._script.shape)[0]
        document = {**msgspec.to_builtins(profile), "convergence": msgspec.json.decode(found.read_bytes())}
        file.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
        return 0

    def _check(self, total_steps: int) -> None:
        """What only the probe knows, before time is spent on training. Raises BadRequest."""
        if self._on_gpu and self._profiles[0].device_kind == "cpu":
            raise BadRequest("--device cuda: torch finds no CUDA device here")
        in_reach(self._script, total_steps)
        if self._measure_after is not None and total_steps < self._measure_after + convergence.LEAST:
            raise BadRequest(_too_short(self._measure_after))

    def _plan(self, shape: Shape) -> Any:
        return planned(shape, self._profiles_for(shape), self._global_batch, self._precision, self._cut)

    def _profiles_for(self, shape: Shape) -> list[ModelProfile]:
        """Nearest in micro-batch size first."""
        wanted = self._global_batch / (shape.microbatches or 1)
        return sorted(self._profiles, key=lambda profile: abs(profile.microbatch_size - wanted))

    def _next_attempt(self) -> tuple[int, int]:
        """Above every claim on the checkpoint directory, so that this attempt may write there."""
        if self._job.checkpoint is None:
            return 0, 2
        try:
            claims = catalogue.claims(open_store(self._job.checkpoint.dir))
        except ValueError as error:
            raise BadRequest(str(error)) from None
        job, attempt = max(claims, default=(0, 1))
        return job, attempt + 1

    def _launch(self, job: int, attempt: int, kind: str, plan: Any) -> Launched:
        adapts = plan is not None and self._job.adapt is not None
        spec = AttemptSpec(
            kind=kind,
            job=self._job,
            nonce=secrets.token_hex(8),
            hold_at=self._script.hold_at if plan else (),
            measure_after=self._measure_after if plan else None,
            profile=profile_at(self._profiles, plan.microbatch_size) if adapts else None,
        )
        start = fork_shim if processes.thread_count() == 1 else start_shim
        ends_with_us = functools.partial(start, parent=os.getpid())
        return Launched(self._folder / kind / f"{job}.{attempt}", spec, plan, ends_with_us)

    def _result_of(self, probe: Launched) -> Report:
        with _stopped_at_an_error(probe, grace_s=0):
            probe.wait(timeout_s=WAIT_S)
        probe.hang_up()
        return probe.pilot

    def _until(self, launched: Launched, sink: places.Sink, condition: Any) -> None:
        while not condition(launched) and not launched.is_gone():
            launched.poll(POLL_S)
            self._tell(launched, sink)
        self._tell(launched, sink)

    def _tell(self, launched: Launched, sink: places.Sink) -> None:
        """Pass new metrics on: to the file as they are, to the terminal as lines."""
        said = launched.pilot.message if launched.is_running() else ""
        if said not in ("", self._said) and launched.pilot.cause is None:
            print(f"jct train: {said}", flush=True)
            self._said = said
        resumed = max((one.resumed_step or 0 for one in launched.reports.values()), default=0)
        if resumed and not self._resumed and self._job.checkpoint is not None:
            print(f"jct train: {_resumed(resumed, self._total_steps, self._job.checkpoint.dir)}", flush=True)
            self._resumed = resumed
        path = launched.folder / FILE_NAME
        if not path.exists():
            return
        with open(path, encoding="utf-8") as file:
            file.seek(self._told)
            new = file.read()
        whole = new[: new.rfind("\n") + 1]
        self._told += len(whole.encode())
        sink.write(whole)
        for line in whole.splitlines():
            print(_line(msgspec.json.decode(line)), flush=True)


@contextlib.contextmanager
def _stopped_at_an_error(launched: Launched, grace_s: float) -> Iterator[None]:
    """Such as an interrupt, or nobody who reads what is printed: it must not go on unseen."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):  # it has ended already, or nobody knows
            launched.stop(grace_s=grace_s, why=f"jct train ended: {type(error).__name__}")
            launched.wait(timeout_s=grace_s + END_S)
        raise


def _stopped(pilot: Report, checkpoint: CheckpointSpec | None) -> str:
    where = f"; the checkpoint of step {pilot.saved} is in {checkpoint.dir}" if checkpoint and pilot.saved else ""
    return f"interrupted after step {pilot.step or 0}{where}"


def _resumed(step: int, total_steps: int, directory: str) -> str:
    if step < total_steps:
        return f"goes on after step {step}, from {directory}"
    return (
        f"nothing to train: of {total_steps} steps {directory} has {step}\n"
        f"  --steps {2 * step} trains on, another checkpoint directory begins anew"
    )


def _too_short(after: int) -> str:
    return f"--profile needs {convergence.LEAST} steps after the first {after} in which weights move; give more --steps"


def _line(metrics: dict[str, Any]) -> str:
    if "validation_loss" in metrics:
        return f"step {metrics['step']}: validation loss {metrics['validation_loss']!r}"
    if "mean_step_time_s" in metrics:
        deviation_s = metrics["variance_step_time_s2"] ** 0.5
        mean_s, steps = metrics["mean_step_time_s"], metrics["steps"]
        line = f"last {steps} steps: {mean_s * 1e3:.1f} ms each, give or take {deviation_s * 1e3:.1f} ms"
        return "\n  ".join([line, *metrics.get("traps", [])])
    norm = "overflowed, no update" if metrics["grad_norm"] is None else f"{metrics['grad_norm']:.6g}"
    return (
        f"step {metrics['step']}: loss {metrics['loss']!r} ({metrics['loss_hex']}), gradient norm {norm}, "
        f"{metrics['step_time_s'] * 1e3:.1f} ms, {metrics['plan']}"
    )


def _failed(launched: Launched, report: Report) -> int:
    """Say why, and show the end of each member's log, since nothing of it stays."""
    blamed = [one for one in launched.reports.values() if one.cause not in (Cause.PEER_LOST, Cause.STOPPED)]
    for one in blamed or [report]:
        print(f"jct train: member {one.member} ended: {one.cause}: {one.message}", file=sys.stderr)
        log = (launched.folder / f"member-{one.member}.log").read_text(errors="replace")
        print("\n".join(log.splitlines()[-30:]), file=sys.stderr)
    return 1
