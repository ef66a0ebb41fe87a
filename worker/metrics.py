"""metrics.jsonl: one JSON object for each step, written by the pilot's member.

step (from 1: finished steps), loss and loss_hex (float.hex, all bits), grad_norm and grad_norm_hex (null and "inf" or
"nan" where float16 overflowed and the update was left out), learning_rate, samples [first, last global sample index],
step_time_s, pause_s (between the step before and this one: saves, evaluations, changes of shape), plan
("stages×micro-batches schedule"). Evaluations are objects with `step` and `validation_loss` (and its hex). Every 100
steps of one plan have an object with their mean_step_time_s and variance_step_time_s2, and with traps, in words, where
communication costs more than it must; of a job that adapts also with stages (forward, backward and load seconds a
micro-batch), links (seconds one way, bytes a second) and a diagnosis in words.
"""

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from worker.entrypoint import user_exception
from worker.steadiness import WHOLE, Steadiness

FILE_NAME = "metrics.jsonl"


class Metrics:
    """Appends; a line is whole or, after a kill or on a full disk, cut short. What does not fit is lost."""

    def __init__(self, folder: Path, log: Callable[[Mapping[str, Any]], object] = lambda values: None) -> None:
        """log: the user's; is given each object too."""
        self._log = log
        self._file = open(folder / FILE_NAME, "ab", buffering=0)  # noqa: SIM115  (lives as long as the member)
        self._cut = False

    def step(
        self,
        step: int,
        loss: float,
        grad_norm: float,
        learning_rate: float | None,
        samples: tuple[int, int],
        step_time_s: float,
        pause_s: float,
        plan: str,
    ) -> None:
        self._write(
            step=step,
            loss=loss,
            loss_hex=loss.hex(),
            grad_norm=grad_norm if math.isfinite(grad_norm) else None,
            grad_norm_hex=grad_norm.hex(),
            learning_rate=learning_rate,
            samples=samples,
            step_time_s=step_time_s,
            pause_s=pause_s,
            plan=plan,
        )

    def evaluation(self, step: int, loss: float) -> None:
        self._write(step=step, validation_loss=loss, validation_loss_hex=loss.hex())

    def steadiness(self, step: int, found: Steadiness, telemetry: Mapping[str, Any]) -> None:
        """telemetry: what is measured of stages and links, where somebody does."""
        self._write(
            step=step,
            steps=WHOLE,
            mean_step_time_s=found.mean_s,
            variance_step_time_s2=found.variance_s2,
            **telemetry,
        )

    def _write(self, **values: Any) -> None:
        line = ("\n" if self._cut else "") + json.dumps(values) + "\n"
        written = 0
        with contextlib.suppress(OSError):  # a full disk costs these lines, not the training
            written = self._file.write(line.encode())
        self._cut = written < len(line)
        try:
            self._log(values)
        except Exception as error:
            raise user_exception(error, "log raised") from None
