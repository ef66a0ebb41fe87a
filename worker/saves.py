"""One rank's saves at step boundaries: when there is something new, what becomes of it, and what a stop would lose."""

import functools

import msgspec
import torch

from scheduler.protocol.messages import Phase
from worker.checkpoint.manifest import Manifest, ProcessGroups, Rng
from worker.checkpoint.saver import Outcome, Saver
from worker.control import Control
from worker.generation import Generation
from worker.progress import Progress


class Saves:
    """saver: None where there is no store. leads: in the pilot's rank, which publishes and tells."""

    def __init__(
        self,
        generation: Generation,
        control: Control,
        progress: Progress,
        saver: Saver | None,
        leads: bool,
        fingerprint: str,
    ) -> None:
        self._generation, self._control, self._progress = generation, control, progress
        self._saver, self._leads, self._fingerprint = saver, leads, fingerprint
        self._trouble = ""

    @property
    def busy(self) -> bool:
        """One is being written."""
        return self._saver is not None and self._saver.busy

    def save(self) -> None:
        """Begin a save of this boundary, unless there is nothing new. All ranks decide alike."""
        if self._saver is None or self._progress.save_begun == self._progress.step:
            return
        self.finish()
        if self._leads:
            self._control.report(phase=Phase.SAVING)
        self._progress.save_begun = self._progress.step
        publish = functools.partial(msgspec.structs.replace, self._manifest()) if self._leads else None
        self._saver.start(self._progress.step, self._generation.saved_here(), publish)

    def finish(self) -> None:
        """Wait for the save that is being written."""
        if self._saver is not None:
            self._saver.wait()
            self.settle()

    def settle(self) -> None:
        """Take in what became of a save. Raises Ended, FENCED."""
        outcome = self._saver.outcome() if self._saver is not None else None
        if outcome is None:
            return
        if outcome.fenced is not None:
            raise outcome.fenced
        if self._leads:
            self._judge(outcome)

    def _judge(self, outcome: Outcome) -> None:
        if not outcome.error:
            self._progress.saved = outcome.step
            self._control.report(saved=outcome.step)
            return
        self._trouble = outcome.error
        saved = self._progress.saved
        newest = "there is none yet" if saved is None else f"the newest is of step {saved}"
        self._control.note(f"checkpoint of step {outcome.step} failed: {outcome.error}; {newest}", of_loss=True)

    def lost_work(self) -> str:
        """What a stop costs, said by the pilot; "" where nothing is lost."""
        if not self._leads:
            return ""
        lost = self._progress.step - (self._progress.saved or 0)
        why = f": {self._trouble}" if self._trouble else ""
        return f"stopped without a checkpoint of the last {lost} steps{why}" if lost else ""

    def _manifest(self) -> Manifest:
        """Of this boundary; the layers' files come when they are written."""
        step, job, plan = self._progress.step, self._generation.job, self._generation.plan
        target = self._control.target
        return Manifest(
            job=target.job,
            attempt=target.attempt,
            step=step,
            samples=job.samples_before(step),
            global_batch=plan.global_batch,
            learning_rate=job.rate_at(step),
            rng=Rng(seed=job.seed),
            fingerprint=self._fingerprint,
            layers=(),
            ties=tuple(tuple(group) for group in job.ties),
            plan=plan,
            process_groups=ProcessGroups(
                backend="gloo",
                members=self._generation.world.members,
                replicas=tuple(stage.ranks for stage in plan.stages),
            ),
            loss_scale=self._progress.loss_scale,
            good_steps=self._progress.good_steps,
            first_evaluation=self._progress.first_evaluation,
            last_evaluation=self._progress.last_evaluation,
            torch=str(torch.__version__),
        )
