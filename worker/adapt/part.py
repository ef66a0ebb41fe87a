"""One rank's part in adapting: it measures its steps, tells of them, and prepares what the pilot wants to revise."""

import time
from collections.abc import Callable, Mapping, Sequence

from policies.ir.timeline import Span
from scheduler.protocol.slowdown import Slowdown, Source
from worker.adapt.adapter import Adapter
from worker.adapt.forecast import Forecast
from worker.adapt.memory import Gauge, Pressure, Watch
from worker.adapt.meter import Meter
from worker.adapt.revision import Reviser
from worker.adapt.statistics import STAMPED_EVERY, Layout
from worker.generation import Generation

CONFIDENT = 0.5


class Part:
    """Around one generation, or one revision of it. adapter: in the pilot's rank."""

    def __init__(
        self, generation: Generation, meter: Meter, reviser: Reviser, gauge: Gauge, adapter: Adapter | None,
        watermark: float, told: Callable[[], Slowdown | None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """watermark: of this rank's memory. told: what the agent says of its device. clock: monotonic seconds."""
        self._watch, self._told, self._clock = Watch(watermark), told, clock
        self.reviser, self.adapter = reviser, adapter
        self._generation, self._meter, self._gauge = generation, meter, gauge
        self._layouts: dict[int, Layout] = {}

    def begin(self) -> list[Span]:
        """A step begins: what takes its spans."""
        self._meter.begin()
        return []

    def values(self, step: int, steps: int, spans: Sequence[Span]) -> Mapping[int, float]:
        """What this rank tells of `steps` steps from `step` on, by place in the vector of `size`."""
        generation, memory = self._generation, self._gauge.read()
        if self._watch.take(self._clock(), memory) is not Pressure.NONE:
            generation.relieve()
        last = len(generation.plan.stages) - 1
        times = {index: self._meter.stage_times(index, last, spans) for index in generation.held}
        stamps = self._meter if _stamped(step, steps) else None
        return self._layout(steps).values(
            generation.rank, times, self.reviser.prepared, memory, foreseen(self._told()), stamps
        )

    def size(self, step: int, steps: int) -> int:
        return self._layout(steps).size(_stamped(step, steps))

    def take(self, vector: Sequence[float], step: int, steps: int, step_s: float) -> None:
        """What all ranks told of `steps` steps up to `step`; for the adapter, which compares steps of whole batches."""
        if self.adapter is not None:
            ran = self._generation.microbatches_at(step - steps)  # fewer than planned while the batch ramps up
            whole_s = step_s * self._generation.plan.microbatches / ran
            self.adapter.take(self._layout(steps).read(vector), step, whole_s)

    def _layout(self, steps: int) -> Layout:
        if steps not in self._layouts:
            self._layouts[steps] = Layout(self._generation.plan, self._generation.routes[steps])
        return self._layouts[steps]


def foreseen(told: Slowdown | None) -> Forecast:
    """What a forest predicts with some confidence of a contested device: what was observed in steps is seen here
    sooner. Of the stage's computing where that is told, since that is what a cut moves; an older agent tells steps."""
    if told is None or not told.contested or told.source is not Source.FOREST or told.confidence < CONFIDENT:
        return Forecast()
    return Forecast(told.stage_ratio or told.ratio, told.stage_low or told.low)


def _stamped(step: int, steps: int) -> bool:
    """Every rank knows it of every step."""
    return step // steps % STAMPED_EVERY == 0
