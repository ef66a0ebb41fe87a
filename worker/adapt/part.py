"""One rank's part in adapting: it measures its steps, tells of them, and prepares what the pilot wants to revise."""

from collections.abc import Mapping, Sequence

from policies.ir.timeline import Span
from worker.adapt.memory import Gauge
from worker.adapt.meter import Meter
from worker.adapt.revision import Reviser
from worker.adapt.statistics import STAMPED_EVERY, Layout, Reading
from worker.generation import Generation


class Part:
    """Around one generation, or one revision of it."""

    def __init__(self, generation: Generation, meter: Meter, reviser: Reviser, gauge: Gauge) -> None:
        self.reviser = reviser
        self._generation, self._meter, self._gauge = generation, meter, gauge
        self._layouts: dict[int, Layout] = {}

    def begin(self) -> list[Span]:
        """A step begins: what takes its spans."""
        self._meter.begin()
        return []

    def values(self, step: int, steps: int, spans: Sequence[Span]) -> Mapping[int, float]:
        """What this rank tells of `steps` steps from `step` on, by place in the vector of `size`."""
        generation = self._generation
        last = len(generation.plan.stages) - 1
        times = {index: self._meter.stage_times(index, last, spans) for index in generation.held}
        stamps = self._meter if _stamped(step, steps) else None
        return self._layout(steps).values(
            generation.rank, times, self.reviser.prepared, self._gauge.read(), stamps
        )

    def size(self, step: int, steps: int) -> int:
        return self._layout(steps).size(_stamped(step, steps))

    def read(self, vector: Sequence[float], steps: int) -> Reading:
        return self._layout(steps).read(vector)

    def _layout(self, steps: int) -> Layout:
        if steps not in self._layouts:
            self._layouts[steps] = Layout(self._generation.plan, self._generation.routes[steps])
        return self._layouts[steps]


def _stamped(step: int, steps: int) -> bool:
    """Every rank knows it of every step."""
    return step // steps % STAMPED_EVERY == 0
