"""Where a rank's idle time comes from. Four causes that sum to makespan - busy, each by comparison with another run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.cost import Durations
from policies.ir.timeline import Timeline
from policies.timing import Compiled, makespan_s, timeline


@dataclass(frozen=True, slots=True)
class Idle:
    """Seconds of one rank over one step.

    exposed_communication: what the makespan loses to transfers: it against the same order with free transfers.
    imbalance: the busiest rank's work less this rank's. fill_drain: what the schedule costs even with equal stages and
    free transfers. stall: the rest, waiting that comes from an order that does not suit the stages.
    """

    fill_drain: float
    exposed_communication: float
    imbalance: float
    stall: float

    @property
    def total(self) -> float:
        return self.fill_drain + self.exposed_communication + self.imbalance + self.stall


def busy_s(run: Timeline) -> tuple[float, ...]:
    """Seconds of computing on each rank."""
    busy = [0.0] * run.ranks
    for span in run.spans:
        busy[span.rank] += span.end_s - span.start_s
    return tuple(busy)


def split_idle(order: Compiled, durations: Durations, run: Timeline | None = None) -> tuple[Idle, ...]:
    """The idle time of each rank by cause (FORMULAS B3: fill/drain + exposed communication + imbalance, and a rest).

    run: the timeline, where it is known already.
    """
    run = run or timeline(order, durations)
    free = makespan_s(order, _without_transfers(durations))
    equal = timeline(order, _without_transfers(_balanced(durations)))
    busy = busy_s(run)
    schedule_s = max(0.0, free - max(busy))
    fill_drain = min(schedule_s, max(0.0, equal.makespan_s - max(busy_s(equal))))
    return tuple(
        Idle(fill_drain, max(0.0, run.makespan_s - free), max(busy) - own, schedule_s - fill_drain) for own in busy
    )


def bubble(run: Timeline) -> float:
    """The idle share of all ranks' time, 0 to 1."""
    whole = run.ranks * run.makespan_s
    return 1 - sum(busy_s(run)) / whole if whole else 0.0


def _without_transfers(durations: Durations) -> Durations:
    return replace(durations, transfer_s=(0.0,) * len(durations.transfer_s), transfers_block=False)


def _balanced(durations: Durations) -> Durations:
    def mean(values: Sequence[float]) -> tuple[float, ...]:
        return (sum(values) / len(values),) * len(values)

    return replace(
        durations,
        forward_s=mean(durations.forward_s),
        backward_input_s=mean(durations.backward_input_s),
        backward_weight_s=mean(durations.backward_weight_s),
        slow=(),
    )
