"""A timeline made ready to be drawn: boxes of work, and idle time shaded by its cause. All renderers start here."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from policies.bubbles import Idle, split_idle
from policies.cost import Durations
from policies.ir.action import Kind
from policies.ir.timeline import Span, Timeline
from policies.timing import Compiled, timeline

KINDS = {
    Kind.FORWARD: ("forward", "#4c8bd6"),
    Kind.BACKWARD: ("backward", "#57a55a"),
    Kind.BACKWARD_INPUT: ("backward, input", "#8ccf6f"),
    Kind.BACKWARD_WEIGHT: ("backward, weight", "#e8a33d"),
}
"""Name and colour of each kind of action."""

CAUSES = ("fill and drain", "exposed communication", "imbalance", "stall")
"""In the order of the fields of Idle."""

SHADES = ("#eceff1", "#f6cfd5", "#ddd3ea", "#cfcfcf")
"""The colours of idle time, in the order of CAUSES."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Idle time of one rank from one cause (an index of CAUSES)."""

    rank: int
    start_s: float
    end_s: float
    cause: int


@dataclass(frozen=True, slots=True)
class Chart:
    """What every renderer draws."""

    title: str
    ranks: int
    makespan_s: float
    spans: tuple[Span, ...]
    gaps: tuple[Gap, ...]
    stage_rank: tuple[int, ...]

    def late(self, span: Span) -> bool:
        """Whether the span's stage is its rank's second or later one; drawn paler."""
        return span.rank in self.stage_rank[: span.action.stage]

    def ink(self, span: Span) -> str:
        """The colour of the number in a span's box."""
        pale = self.late(span) or span.action.kind in {Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT}
        return "#222222" if pale else "#ffffff"

    @property
    def kinds(self) -> list[Kind]:
        present = {span.action.kind for span in self.spans}
        return [kind for kind in KINDS if kind in present]

    @property
    def causes(self) -> list[int]:
        return sorted({gap.cause for gap in self.gaps})


def chart(order: Compiled, durations: Durations, title: str = "") -> Chart:
    """Time a schedule and lay it out."""
    run = timeline(order, durations)
    gaps = [
        gap
        for rank, idle in enumerate(split_idle(order, durations))
        for gap in _shade(rank, _idle_of(run, rank), idle, run.makespan_s)
    ]
    return Chart(title, run.ranks, run.makespan_s, run.spans, tuple(gaps), order.schedule.stage_rank)


def _idle_of(run: Timeline, rank: int) -> list[tuple[float, float]]:
    gaps, now = [], 0.0
    for span in sorted((span for span in run.spans if span.rank == rank), key=lambda span: span.start_s):
        if span.start_s > now + 1e-12:
            gaps.append((now, span.start_s))
        now = span.end_s
    if run.makespan_s > now + 1e-12:
        gaps.append((now, run.makespan_s))
    return gaps


def _shade(rank: int, gaps: Sequence[tuple[float, float]], idle: Idle, makespan_s: float) -> list[Gap]:
    """Cut the rank's gaps so that each cause gets exactly its share: first fill and drain from both ends inwards, then
    the others in time order."""
    budget = list(astuple(idle))
    ends = [gap for gap in gaps if gap[0] == 0.0 or gap[1] == makespan_s]
    inner = [gap for gap in gaps if gap not in ends]
    shaded: list[Gap] = []
    for causes, group in (((0, 1, 2, 3), ends), ((1, 0, 2, 3), inner)):
        left = list(group)
        for cause in causes:
            rest: list[tuple[float, float]] = []
            for start, end in left:
                take = min(end - start, budget[cause])
                budget[cause] -= take
                if take > 1e-12:
                    shaded.append(Gap(rank, start, start + take, cause))
                if end - start - take > 1e-12:
                    rest.append((start + take, end))
            left = rest
    return sorted(shaded, key=lambda gap: gap.start_s)


def unit_of(makespan_s: float) -> tuple[str, float]:
    """The unit of a time axis and its length in seconds."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if makespan_s >= 2 * scale:
            return unit, scale
    return "µs", 1e-6


def ticks(makespan_s: float, most: int = 10) -> list[float]:
    """Round positions in seconds on the time axis, at most `most` + 1."""
    if makespan_s <= 0:
        return [0.0]
    exponent = math.floor(math.log10(makespan_s / most))
    steps = [float(f"{factor}e{exponent}") for factor in (1, 2, 5, 10)]
    step = next(step for step in steps if makespan_s / step <= most)
    return [i * step for i in range(int(makespan_s / step + 1e-9) + 1)]
