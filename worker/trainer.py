"""The training loop of one rank: steps, boundaries, evaluations, saves, and one end."""

import math
import time
from collections.abc import Callable

from policies.ir.timeline import Span
from scheduler.protocol.messages import Cause, Evaluation, Phase
from worker.adapt.part import Part
from worker.adapt.revision import Revise
from worker.carry import Carrier
from worker.checkpoint.saver import Saver
from worker.control import Control
from worker.convergence import Measuring
from worker.errors import Ended
from worker.generation import Generation
from worker.guards import Guard
from worker.idle import bubble_share, computing_s
from worker.layer import Layer
from worker.metrics import Metrics
from worker.pilot import Header, Pilot
from worker.progress import Progress
from worker.saves import Saves
from worker.scaling import LEAST, SCALED, adjust
from worker.steadiness import StepTimes
from worker.timelines import Timelines
from worker.versions import WINDOW


class Trainer:
    """Runs a generation from `progress.step` to an end. pilot, metrics: in the pilot's member only.

    part: of this rank in adapting, where the job adapts.
    """

    def __init__(
        self,
        generation: Generation,
        control: Control,
        progress: Progress,
        saver: Saver | None,
        pilot: Pilot | None,
        metrics: Metrics | None,
        fingerprint: str,
        timelines: Timelines,
        prepare: Callable[[int], Carrier | None],
        ready_at: float,
        part: Part | None = None,
        move: Callable[[int], Carrier | None] = lambda number: None,
        measuring: Measuring | None = None,
    ) -> None:
        """prepare: what carries layers to the generation of this number, None where that could not be. move: the same
        for a revision. measuring: of convergence, where it is asked for.

        ready_at: perf_counter() when the last step ended or training could begin; what follows counts as pause.
        """
        self._prepare, self._move, self._measuring = prepare, move, measuring
        self.carrier: Carrier | None = None
        self._ready_at = self._met_at = ready_at
        self._timelines, self._part = timelines, part
        self.generation, self.control, self.progress = generation, control, progress
        self.pilot, self.metrics = pilot, metrics
        self.job, self.plan = generation.job, generation.plan
        self._guard = Guard(generation)
        self._validation = generation.validation_batches()
        self._saves = Saves(generation, control, progress, saver, pilot is not None, fingerprint)
        self._step_times = StepTimes()

    def run(self) -> Ended | int | Revise:
        """Train to the end, FINISHED or STOPPED; or to a boundary where the generation of this number, or a revision of
        the present one, takes over.

        Raises:
            Ended: anything else. What the user's layers raise.
        """
        while self.progress.step < self.job.total_steps:
            end = self._boundary(self._evaluate()) if self._evaluation_due() else None
            if end is not None:
                return end
            header, generation = self._step()
            end = self._boundary(header)
            if end is not None:
                return end
            if header is Header.CHANGE:
                self._saves.finish()
                return generation
            if header is Header.REVISE:
                self._saves.finish()
                return Revise(generation)
            if header is Header.PREPARE and self._part is not None:
                self._part.reviser.prepare(generation)
            if header is Header.MOVE:
                self.carrier = self._move(generation)
                if self.carrier is None and self.pilot is not None:
                    self.pilot.stays()
            else:
                self.carrier = self._prepare(generation) if header is Header.CARRY else None
        return self._finish()

    def go_on(self, ready_at: float) -> None:
        """A change that did not happen counts as pause from its boundary on."""
        self.carrier = None
        self._guard.reset()
        self._ready_at = ready_at

    def _step(self) -> tuple[Header, int]:
        """One step, from forward to optimizer, or a window of asynchronous ones, up to a drained pipeline.

        Returns the header, and the number that goes with it.
        """
        step, steps = self.progress.step, self._steps()
        started = time.perf_counter()
        pause_s = started - self._ready_at
        self._report(phase=Phase.TRAINING)
        traced = self._timelines.begin()
        spans: list[Span] | None = traced if self._part is None else self._part.begin()
        if self._measuring is not None:
            self._measuring.begin(step)
        values = self.generation.train(step, steps, self.job.rate_at, spans, self.carrier, self._loss_scale)
        end = steps * self.generation.width
        boundary = step + steps
        values[end], values[end + 1] = self._header(boundary, left=self.job.total_steps - boundary)
        idle = end + 2 + self._guard.size
        values |= {end + 2 + place: value for place, value in self._guard.values().items()}
        values[idle] = computing_s(spans or ())
        size = told = idle + 1
        if self._part is not None and spans is not None:
            values |= {size + place: value for place, value in self._part.values(step, steps, spans).items()}
            size += self._part.size(step, steps)
        summed = self.generation.exchange(values, size)
        if spans is not None and self.pilot is not None:
            ranks, whole_s = self.plan.world_size, time.perf_counter() - started
            self.control.report(bubble_share=bubble_share(summed[idle], ranks, whole_s))
        if traced is not None and spans is not None:
            self._timelines.give(spans, self.generation.sums(), self._met_at)
        self._met_at = time.perf_counter()
        found = [self._sums(summed, i) for i in range(steps)]
        self._guard.check(summed[end + 2 : idle], boundary, self.generation.units(step, steps))
        if self._measuring is not None:
            self._measuring.keep(step, found[0][0])
        if not self.generation.asynchronous:
            self._update(step, found[0][1])
        if self._measuring is not None:
            self._measuring.look_again(step)
        self.progress.step = boundary
        self._ready_at = time.perf_counter()
        elapsed_s = (self._ready_at - started) / steps
        if self._part is not None:
            self._part.take(summed[told:], boundary, steps, elapsed_s)
        for i, (loss, norm) in enumerate(found):
            self._tell(step + i + 1, loss, norm, elapsed_s, pause_s if i == 0 else 0.0)
        return Header(round(summed[end])), round(summed[end + 1])

    def _steps(self) -> int:
        """How many steps come in one go: 1, or as many asynchronous ones as reach to the next thing to be done."""
        step, validation = self.progress.step, self.job.validation
        if not self.generation.asynchronous:
            return 1
        marks = [WINDOW - step % WINDOW, self.job.total_steps - step]
        marks += [mark - step for mark in self.control.target.spec.hold_at if mark > step]
        if validation is not None and validation.every:
            marks.append(validation.every - step % validation.every)
        return min(marks)

    def _sums(self, summed: list[float], i: int) -> tuple[float, float]:
        """Loss and gradient norm of the i-th step. Raises Ended where they are no numbers."""
        layers, base = self.plan.layer_count, i * self.generation.width
        norm = math.sqrt(_ordered_sum(summed[base : base + layers])) / self._loss_scale
        losses = summed[base + layers : base + self.generation.width]
        loss = _ordered_sum(losses) / self.generation.microbatches_at(self.progress.step + i)
        if not math.isfinite(loss) or not (math.isfinite(norm) or self._may_skip):
            raise Ended(
                Cause.USER_EXCEPTION,
                f"step {self.progress.step + i + 1}: loss is {loss}, gradient norm {norm}; training cannot go on. "
                "Lower the learning rate or clip gradients; the last checkpoint is from before",
            )
        return loss, norm

    @property
    def _loss_scale(self) -> float:
        return self.progress.loss_scale if self.plan.precision in SCALED else 1.0

    @property
    def _may_skip(self) -> bool:
        """An overflow costs this step's update, and the scale its half."""
        return self.plan.precision in SCALED and self.progress.loss_scale >= LEAST

    def _update(self, step: int, norm: float) -> None:
        rate, limit = self.job.rate_at(step), self.job.clip_norm
        scale = limit / (norm + 1e-6) if limit is not None and norm > limit else None
        if self.plan.precision in SCALED:
            scale = (scale or 1.0) / self.progress.loss_scale
            adjust(self.progress, math.isfinite(norm))
        arrived: list[Layer] = []
        if self.carrier is not None:
            self.carrier.settle()
            arrived = list(self.carrier.arriving.values())
        for layer in (*self.generation.layers, *arrived):
            if math.isfinite(norm):
                layer.update(rate, scale)
            else:
                layer.drop_gradients()
        self._guard.updated(rate, scale)

    def _tell(self, step: int, loss: float, norm: float, elapsed_s: float, pause_s: float) -> None:
        if self.metrics is None:
            return
        samples = self.job.samples_before(step - 1), self.job.samples_before(step) - 1
        self.metrics.step(
            step,
            loss,
            norm,
            self.job.rate_at(step - 1),
            samples,
            elapsed_s,
            pause_s,
            self.plan.name,
        )
        self._report(step=step, loss=loss, step_time_s=elapsed_s, batch=self.job.batch_at(step - 1))
        steadiness = self._step_times.take(elapsed_s)
        if steadiness is not None:
            adapter = self._part.adapter if self._part is not None else None
            told = adapter.telemetry() if adapter is not None else {}
            if self._timelines.traps:
                told = {**told, "traps": self._timelines.traps}
            self.metrics.steadiness(step, steadiness, told)
            if word := self._step_times.word(steadiness):
                self.control.note(word)

    def _header(self, boundary: int, left: int) -> tuple[Header, int]:
        """The pilot's word; the other ranks add 0 to it."""
        if self.pilot is None:
            return Header.GO, 0
        return self.pilot.header(boundary, self._saves.busy, left)

    def _boundary(self, header: Header) -> Ended | None:
        """Act on the header between two steps. Returns the end where there is one."""
        self._saves.settle()
        if self.progress.step >= self.job.total_steps:
            return None
        if header.saves:
            self._saves.save()
        if not header.stops:
            return None
        self._saves.finish()
        return Ended(Cause.STOPPED, self._saves.lost_work())

    def _finish(self) -> Ended:
        """All steps are done: save, then evaluate, so that a kill in between loses no training."""
        self._saves.save()
        if self._evaluation_due():
            self._evaluate()
        self._saves.finish()
        return Ended(Cause.FINISHED)

    def _evaluation_due(self) -> bool:
        validation, step, last = self.job.validation, self.progress.step, self.progress.last_evaluation
        if validation is None or (last is not None and last.step == step):
            return False
        return step in (0, self.job.total_steps) or (validation.every > 0 and step % validation.every == 0)

    def _evaluate(self) -> Header:
        """Validation loss at this boundary. A stop cuts it short: it is done again after the resume."""
        assert self.job.validation is not None
        assert self._validation is not None
        self._report(phase=Phase.EVALUATING)
        total, header = 0.0, Header.GO
        microbatches, batches = self.plan.microbatches, self.job.validation.batches
        for batch in range(batches):
            losses = self.generation.evaluate(batch, self._validation)
            values = dict(losses)
            values[microbatches], _ = self._header(self.progress.step, left=0)
            summed = self.generation.exchange(values, microbatches + 1)
            total += _ordered_sum(summed[:-1]) / microbatches
            header = max(header, Header(round(summed[-1])))
            if header.stops and batch + 1 < batches and self.progress.step < self.job.total_steps:
                return header
        found = Evaluation(step=self.progress.step, loss=total / batches)
        self.progress.first_evaluation = self.progress.first_evaluation or found
        self.progress.last_evaluation = found
        if self.metrics is not None:
            self.metrics.evaluation(found.step, found.loss)
            self._report(first_evaluation=self.progress.first_evaluation, last_evaluation=found)
        return header

    def _report(self, **changes: object) -> None:
        """The pilot speaks for the job; the others report their phase when they start and end."""
        if self.pilot is not None:
            self.control.report(**changes)



def _ordered_sum(values: list[float]) -> float:
    """From first to last in float64, whatever ranks the values came from."""
    total = 0.0
    for value in values:
        total += value
    return total
