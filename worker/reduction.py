"""A stage's gradients summed over its replicas, from its last layer to its first, while its last backward still runs.

A layer's gradients are complete as soon as the last micro-batch's backward has passed it; from then on they travel
beside the backward of the layers before it. Small layers travel together. All replicas sum the same buckets in the same
order, whenever each of them has them ready.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from worker.layer import Layer
from worker.transport import Group, Work

BUCKET_BYTES = 1 << 20
"""Of small layers that travel together; a larger one travels alone."""


class Reduction:
    """One stage's. `arm` before its last backward, `close` after it, `finish` before gradients are read."""

    def __init__(self, group: Group, layers: Sequence[Layer]) -> None:
        self._group = group
        self._buckets = buckets(layers)
        self._missing: list[int] = []
        self._hooks: list[Any] = []
        self._sums: list[tuple[Work, list[Tensor], Tensor, float]] = []
        self.passed: list[tuple[int, float, float]] = []
        """The last step's sums: bytes, and when each was begun and had come, on time.perf_counter's clock."""

    def arm(self) -> None:
        """From now on each bucket starts when its last gradient has come."""
        self._missing = []
        for number, bucket in enumerate(self._buckets):
            trained = [one for layer in bucket for one in layer.parameters.values() if one.requires_grad]
            self._missing.append(len(trained))
            for parameter in trained:
                hook = parameter.register_post_accumulate_grad_hook(self._count(number))  # type: ignore[no-untyped-call]
                self._hooks.append(hook)

    def close(self) -> None:
        """Start what has not: gradients that were put off, or that never come and count as zeros."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._start(len(self._buckets))

    def finish(self) -> None:
        """Wait for all sums and put them back. Raises PeerLost."""
        self.passed = []
        for work, gradients, flat, begun_s in self._sums:
            self._group.finish(work)
            self.passed.append((flat.numel() * flat.element_size(), begun_s, time.perf_counter()))
            pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
            for gradient, piece in zip(gradients, pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))
        self._sums = []

    def _count(self, number: int) -> Callable[[Tensor], None]:
        def hook(_parameter: Tensor) -> None:
            self._missing[number] -= 1
            ready = next((i for i, missing in enumerate(self._missing) if missing > 0), len(self._missing))
            self._start(ready)

        return hook

    def _start(self, stop: int) -> None:
        """Buckets before `stop` that have not started yet, in order."""
        for bucket in self._buckets[len(self._sums) : stop]:
            gradients = [gradient for layer in bucket for gradient in layer.all_gradients()]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self._sums.append((self._group.begin_sum(flat), gradients, flat, time.perf_counter()))


def buckets(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Trained layers from the last to the first, small neighbours together; one dtype a bucket."""
    found: list[list[Layer]] = []
    size, last = 0, None
    for layer in reversed(layers):
        trained = [parameter for parameter in layer.parameters.values() if parameter.requires_grad]
        if not trained:
            continue
        bytes_, dtype = sum(one.numel() * one.element_size() for one in trained), trained[0].dtype
        if not found or size + bytes_ > BUCKET_BYTES or dtype != last:
            found.append([])
            size, last = 0, dtype
        found[-1].append(layer)
        size += bytes_
    return found
