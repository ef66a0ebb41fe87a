"""What every rank tells of a step, on the all-reduce that ends it: no message of its own (DYN-34).

The vector is a sum in which each place is set by one rank at most, so the sum is exact. After the step's own values
come, for each stage on each rank, its forward, backward and load seconds a micro-batch; for each rank the revision it
has prepared (negative: refused), its memory, used and whole, and the slowdown that its agent foresees with the low end
of its interval; and now and then, for each message, when it was sent and when it came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.ir.instruction import Op, Program
from policies.ir.plan import ParallelPlan
from worker.adapt.forecast import Forecast
from worker.adapt.meter import Meter, StageTimes
from worker.executor import message_tags
from worker.shapes import Shape

STAMPED_EVERY = 4
"""Steps between two whose messages are stamped: the stamps are most of the vector."""

TIMES, STATES = 3, 5


@dataclass(frozen=True)
class Route:
    """A message's way. size_bytes: of its tensor."""

    source: int
    destination: int
    size_bytes: int


@dataclass(frozen=True)
class Memory:
    """used_bytes of total_bytes on a rank's device; 0 of 0 where nobody knows."""

    used_bytes: float = 0.0
    total_bytes: float = 0.0

    @property
    def share(self) -> float:
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True)
class Passage:
    """One message as both ends saw it, each on its own clock: arrival minus departure, in seconds."""

    route: Route
    seconds: float


@dataclass(frozen=True)
class Reading:
    """What all ranks told of one step. prepared: revision of each rank, negative where it refused. foreseen: of each
    rank's device, as far as it is to be trusted."""

    times: Mapping[tuple[int, int], StageTimes]
    prepared: tuple[int, ...]
    memory: tuple[Memory, ...]
    foreseen: tuple[Forecast, ...]
    passages: tuple[Passage, ...] = field(default=())


class Layout:
    """Places in the vector, the same on every rank of a plan. routes: of the step's messages, by tag."""

    def __init__(self, plan: ParallelPlan, routes: Sequence[Route]) -> None:
        self._holders = [(index, rank) for index, stage in enumerate(plan.stages) for rank in stage.ranks]
        self._last, self._ranks, self._routes = len(plan.stages) - 1, plan.world_size, tuple(routes)
        self._states = TIMES * len(self._holders)
        self._stamps = self._states + STATES * self._ranks

    def size(self, stamped: bool) -> int:
        return self._stamps + (2 * len(self._routes) if stamped else 0)

    def values(
        self, rank: int, times: Mapping[int, StageTimes], prepared: int, memory: Memory, foreseen: Forecast,
        meter: Meter | None,
    ) -> dict[int, float]:  # fmt: skip
        """This rank's places. times: by stage. meter: whose stamps go along, None in a step without."""
        found: dict[int, float] = {}
        for index, holder in enumerate(self._holders):
            if holder[1] == rank and holder[0] in times:
                one = times[holder[0]]
                found |= dict(enumerate((one.forward_s, one.backward_s, one.load_s), TIMES * index))
        place = self._states + STATES * rank
        own = (float(prepared), memory.used_bytes, memory.total_bytes, foreseen.ratio, foreseen.low)
        found |= dict(enumerate(own, place))
        if meter is not None:
            found |= {self._stamps + 2 * tag: moment for tag, moment in meter.sent_s.items()}
            found |= {self._stamps + 2 * tag + 1: moment for tag, moment in meter.arrived_s.items()}
        return found

    def read(self, vector: Sequence[float]) -> Reading:
        """vector: from the first place of the statistics on."""
        times = {
            holder: StageTimes(*vector[TIMES * index : TIMES * (index + 1)])
            for index, holder in enumerate(self._holders)
        }
        states = [self._states + STATES * rank for rank in range(self._ranks)]
        stamps = vector[self._stamps :]
        passages = [
            Passage(route, stamps[2 * tag + 1] - stamps[2 * tag])
            for tag, route in enumerate(self._routes[: len(stamps) // 2])
            if stamps[2 * tag] and stamps[2 * tag + 1]
        ]
        return Reading(
            times,
            tuple(round(vector[place]) for place in states),
            tuple(Memory(vector[place + 1], vector[place + 2]) for place in states),
            tuple(Forecast(vector[place + 3], vector[place + 4]) for place in states),
            tuple(passages),
        )


def routes_of(programs: Sequence[Program], entering: Mapping[int, Sequence[Shape]]) -> tuple[Route, ...]:
    """Every message's way, by tag. entering: shapes of what enters each stage, slice by slice."""
    tags = message_tags(programs)
    found: dict[int, Route] = {}
    for rank, program in enumerate(programs):
        for do in program:
            if do.op in (Op.RECV_FORWARD, Op.RECV_BACKWARD) and do.peer is not None:
                shape = entering[do.stage if do.op is Op.RECV_FORWARD else do.stage + 1][do.chunk]
                found[tags[do.message]] = Route(do.peer, rank, shape.size_bytes)
    return tuple(found[tag] for tag in range(len(tags)))
