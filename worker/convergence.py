"""What a training tells of its problem: smoothness, second moments of gradients, their noise (FORMULAS B2.7, B5.4).

Smoothness compares two gradients of the SAME batch, before and after the optimizer's step; of different batches it
would measure noise. So a measured step runs forward and backward twice, and training takes twice as long; what it
trains does not change, since the second gradients are thrown away and buffers put back.
"""

import collections
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from policies.convergence import Noise, gradient_noise, loss_floor, noise_scale, smoothness
from scheduler.protocol.messages import Cause
from worker.checkpoint.directory import Directory
from worker.errors import Ended
from worker.generation import Generation
from worker.layer import Layer
from worker.scaling import SCALED
from worker.stage import Stage

FILE_NAME = "convergence.json"
WINDOW, LEAST = 150, 100
WRITTEN_EVERY = 10
"""Steps between two fits, which cost some milliseconds each; the last step has its own."""
POINTS = 1000
"""Of the loss curve, at most: a fit of any training takes as long."""
TARGET = 0.1
"""Of the present squared gradient norm: what to reach, until somebody says otherwise."""


class Measuring:
    """One rank's part. after: steps of warm-up, of which only the losses count. folder: where the pilot writes."""

    def __init__(self, generation: Generation, after: int, folder: Path | None) -> None:
        """Raises Ended, NOT_SUPPORTED: the schedule updates or splits what would be measured."""
        plan = generation.plan
        if generation.asynchronous or generation.splits or plan.microbatches < 2 or plan.precision in SCALED:
            raise Ended(
                Cause.NOT_SUPPORTED,
                "convergence is measured with two micro-batches or more, without loss scaling, and with a synchronous "
                "schedule whose backward is whole, such as 1f1b",
            )
        self._generation, self._after, self._folder = generation, after, folder
        self._losses = Curve()
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._parts: dict[int, float] = {}
        self._records: collections.deque[_Record] = collections.deque(maxlen=WINDOW)

    def begin(self, step: int) -> None:
        """Before a step: from the end of the warm-up on, look at every micro-batch's gradients."""
        self._parts = {}
        for stage in self._generation.stages.values():
            stage.watch = _Watch(stage, self._parts) if step >= self._after else None

    def keep(self, step: int, loss: float) -> None:
        """The step's gradients are summed, nothing is updated yet."""
        self._losses.take(loss)
        if step < self._after:
            return
        for stage in self._generation.stages.values():
            stage.watch = None
        self._kept = {
            layer.index: [(one.detach().clone(), one.grad.clone()) for one in _with_gradients(layer)]
            for layer in self._generation.layers
        }
        modules = [layer.module for layer in self._generation.layers]
        self._buffers = [(buffer, buffer.clone()) for module in modules for buffer in module.buffers()]

    def look_again(self, step: int) -> None:
        """The optimizer has stepped: gradients of the same batch at the new weights."""
        if step < self._after:
            return
        generation = self._generation
        generation.train(step, 1, lambda _: None)
        count, layers = generation.microbatches_at(step), generation.plan.layer_count
        values = {3 * layers + microbatch: square * count * count for microbatch, square in self._parts.items()}
        for layer in generation.counted_layers():
            pairs = list(zip(self._kept[layer.index], _with_gradients(layer), strict=True))
            values[layer.index] = sum(_square(before) for (_, before), _ in pairs)
            values[layers + layer.index] = sum(_square(now.grad - before) for (_, before), now in pairs)
            values[2 * layers + layer.index] = sum(_square(now - place) for (place, _), now in pairs)
        for stage in generation.stages.values():
            stage.accumulated = 0
        for layer in generation.layers:
            layer.drop_gradients()
        for buffer, before in self._buffers:
            buffer.copy_(before)
        summed = generation.exchange(values, 3 * layers + count)
        self._records.append(_Record.of(summed, layers, generation.plan.microbatch_size))
        due = (step - self._after + 1 - LEAST) % WRITTEN_EVERY == 0 or step + 1 == generation.job.total_steps
        if self._folder is not None and len(self._records) >= LEAST and due:
            self._write(self._folder)

    def _write(self, folder: Path) -> None:
        """Where nothing can be told, such as while the learning rate is 0, training goes on, and the file stays."""
        try:
            document = json.dumps(figures(list(self._records), self._losses.points), allow_nan=False)
        except (ValueError, ArithmeticError):
            return
        Directory(folder).write(FILE_NAME, document.encode(), "pilot")


class Curve:
    """The losses of a training of any length, at not more than `most` evenly spaced steps, the first among them."""

    def __init__(self, most: int = POINTS) -> None:
        self.points: list[float] = []
        self._most, self._every, self._seen = most, 1, 0

    def take(self, loss: float) -> None:
        if self._seen % self._every == 0:
            self.points.append(loss)
        if len(self.points) > self._most:
            self.points, self._every = self.points[::2], 2 * self._every
        self._seen += 1


class _Record:
    """One step: squared gradient norm of each layer, norms of the changes of gradient and place, gradient noise."""

    def __init__(self, moments: list[float], changed: float, moved: float, noise: Noise) -> None:
        self.moments, self.changed, self.moved, self.noise = moments, changed, moved, noise

    @staticmethod
    def of(summed: list[float], layers: int, size: int) -> "_Record":
        moments = summed[:layers]
        noise = gradient_noise(summed[3 * layers :], sum(moments), size)
        changed, moved = sum(summed[layers : 2 * layers]), sum(summed[2 * layers : 3 * layers])
        return _Record(moments, changed**0.5, moved**0.5, noise)


def figures(records: list[_Record], losses: list[float]) -> dict[str, Any]:
    """The `convergence` of a profile. Raises ValueError: fewer than 100 records."""
    floor = loss_floor(losses)
    layers = len(records[0].moments) if records else 0
    squared = sum(record.noise.squared for record in records) / max(len(records), 1)
    return {
        "smoothness": smoothness([record.changed for record in records], [record.moved for record in records]),
        "gradient_second_moment": [
            sum(record.moments[layer] for record in records) / len(records) for layer in range(layers)
        ],
        "gradient_noise_scale": min(noise_scale([record.noise for record in records]), 1e18),
        "initial_gap": max(losses[0] - floor, 0.0),
        "target_gradient_norm_squared": max(TARGET * squared, 0.0),
    }


class _Watch:
    """Adds up the squared norms of what each micro-batch adds to a stage's gradients."""

    def __init__(self, stage: Stage, parts: dict[int, float]) -> None:
        self._stage, self._parts = stage, parts
        self._before: dict[int, Tensor] = {}

    def __call__(self, microbatch: int) -> None:
        square = 0.0
        for layer in self._stage.layers:
            for parameter in _with_gradients(layer):
                before = self._before.get(id(parameter))
                square += _square(parameter.grad if before is None else parameter.grad - before)
                self._before[id(parameter)] = parameter.grad.clone()
        self._parts[microbatch] = self._parts.get(microbatch, 0.0) + square


def _with_gradients(layer: Layer) -> list[Any]:
    """Parameters that have one; they always do, or never. (Typed loosely: the stubs call every gradient optional.)"""
    named: Mapping[str, Any] = layer.parameters
    return [one for name, one in named.items() if one.grad is not None and name not in layer.uncounted]


def _square(tensor: Tensor) -> float:
    with torch.no_grad():
        return float(tensor.double().pow(2).sum())
