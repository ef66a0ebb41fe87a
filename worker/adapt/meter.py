"""One rank's stopwatch: what its stages compute, what its loader takes, and when its messages leave and come."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from policies.ir.action import Kind
from policies.ir.timeline import Span
from worker.executor import Source
from worker.transport import Group, Work

BLOCKED_S = 5e-5
"""A receiver that waited for less than this may have been late itself: it cannot tell when the message came."""


@dataclass(frozen=True)
class StageTimes:
    """Seconds a micro-batch of one stage on one rank; load_s: of that, fetching inputs and targets is not part."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    load_s: float = 0.0

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.backward_s


class Meter:
    """sent_s, arrived_s: by message tag, on this machine's clock; arrivals only where the receiver waited for them."""

    def __init__(self) -> None:
        self.sent_s: dict[int, float] = {}
        self.arrived_s: dict[int, float] = {}
        self.load_s = 0.0

    def begin(self) -> None:
        """A step begins: forget the one before."""
        self.sent_s.clear()
        self.arrived_s.clear()
        self.load_s = 0.0

    def group(self, group: Group) -> Group:
        """The group with its messages stamped."""
        return _StampedGroup(group, self)

    def source(self, source: Source) -> Source:
        """The source with its time counted."""
        return _TimedSource(source, self)

    def stage_times(self, stage: int, last: int, spans: Sequence[Span]) -> StageTimes:
        """Of a stage here, from the step's spans; `last` is the pipeline's last stage, which fetches targets."""
        own = [span for span in spans if span.action.stage == stage]
        forwards = [span.end_s - span.start_s for span in own if span.action.kind is Kind.FORWARD]
        count = len({span.action.microbatch for span in own})
        if not count:
            return StageTimes()
        loads = len({span.action.stage for span in spans} & {0, last})
        load_s = self.load_s / loads if stage in (0, last) else 0.0
        backward_s = sum(span.end_s - span.start_s for span in own if span.action.kind is not Kind.FORWARD)
        return StageTimes(max(0.0, sum(forwards) - load_s) / count, backward_s / count, load_s / count)


class _TimedSource:
    def __init__(self, source: Source, meter: Meter) -> None:
        self._source, self._meter = source, meter

    def inputs(self, step: int, microbatch: int) -> Any:
        return self._timed(self._source.inputs, step, microbatch)

    def targets(self, step: int, microbatch: int) -> Any:
        return self._timed(self._source.targets, step, microbatch)

    def _timed(self, fetch: Any, step: int, microbatch: int) -> Any:
        begun = time.perf_counter()
        value = fetch(step, microbatch)
        self._meter.load_s += time.perf_counter() - begun
        return value


@dataclass(frozen=True)
class _Receipt:
    """A receive that was posted. Whoever waits for it learns when the message came."""

    work: Work
    tag: int
    meter: Meter

    def wait(self) -> None:
        begun = time.perf_counter()
        self.work.wait()
        ended = time.perf_counter()
        if ended - begun > BLOCKED_S:
            self.meter.arrived_s[self.tag] = ended


class _StampedGroup(Group):
    def __init__(self, group: Group, meter: Meter) -> None:
        super().__init__(None, group.rank, group.size)
        self._inner, self._meter = group, meter

    def send(self, tensor: Tensor, peer: int, tag: int) -> Work:
        self._meter.sent_s[tag] = time.perf_counter()
        return self._inner.send(tensor, peer, tag)

    def receive(self, tensor: Tensor, peer: int, tag: int) -> Work:
        return _Receipt(self._inner.receive(tensor, peer, tag), tag, self._meter)

    def sum(self, tensor: Tensor) -> None:
        self._inner.sum(tensor)
