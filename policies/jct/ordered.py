"""Policies that only order jobs: each gets the device count that its user asked for, or waits.

`fifo` by age, with backfill behind a blocked job where that does not delay it; `srtf` by remaining time, preempting;
`las` by attained device-seconds in a few levels, preempting between levels only (Tiresias, NSDI'19).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from policies.jct.problem import NOTHING, Grant, JobDemand, Option, Placement, Problem
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work, look_at

LEVELS_GPU_S = (3_600.0, 36_000.0)
"""Attained service at which a job falls to the next level of `las`."""


class Fifo:
    """First come, first served; waiting counts by weight. A job behind the first blocked one starts if it ends before
    that one could start."""

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms = Rooms.of(problem)
        works = [look_at(job, rooms.kinds) for job in problem.jobs]
        waiting = sorted((w for w in works if w.job.waits), key=by_age)
        ends = [(w.left_s, w.job.placement) for w in works if w.job.placement and w.current is not None and w.known]
        grants: list[Grant] = []
        shadow_s: float | None = None
        for work in waiting:
            for option in asked_options(work):
                if shadow_s is not None and not (work.known and work.takes_s(option) <= shadow_s):
                    continue
                if placement := rooms.find(option, work.job):
                    rooms.take(placement, work.job)
                    ends.append((work.takes_s(option), placement))
                    grants.append(_grant(work, option, placement))
                    break
            else:
                if shadow_s is None and (options := asked_options(work)):
                    shadow_s = _fits_in_s(rooms, options[0], ends, work.job)
        return tuple(grants)

    def settles_in_s(self, problem: Problem) -> float:
        return math.inf

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        return [(work, asked_options(work)) for work in sorted(waiting, key=by_age)]

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        return (Term("seconds since submission x weight", work.job.age_s * work.job.weight),)


def _fits_in_s(rooms: Rooms, option: Option, ends: list[tuple[float, Placement]], job: JobDemand) -> float:
    """When the option fits if jobs end as predicted and nobody starts; 0 where that cannot be said."""
    given: list[Placement] = []
    found = 0.0
    for seconds, placement in sorted(ends, key=lambda end: end[0]):
        rooms.give(placement)
        given.append(placement)
        if rooms.find(option, job):
            found = seconds
            break
    for placement in given:
        rooms.take(placement)
    return found


class Preempting:
    """Hands the cluster out in an order. Running jobs keep their place unless an earlier one needs it."""

    def key(self, work: Work) -> tuple[float, ...]:
        raise NotImplementedError

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        kinds = {node.id: node.kind for node in problem.nodes}
        works = [look_at(job, kinds) for job in problem.jobs]
        order = sorted((w for w in works if not self.fixed(w)), key=lambda work: (*self.key(work), work.job.id))
        book = Book(problem, order)
        fixed = [work for work in works if self.fixed(work)]
        grants: list[Grant] = []
        for work in order:
            if work.job.placement and book.keep(work.job):
                continue
            if (found := book.find(work)) is not None:
                grants.append(_grant(work, *found))
            elif work.job.placement:
                grants.append(Grant(work.job.id, NOTHING))
            else:
                self.blocked(work, book, fixed)
        return tuple(grants)

    def fixed(self, work: Work) -> bool:
        """Whether it is left as it is, whoever waits."""
        return work.job.fixed

    def blocked(self, work: Work, book: "Book", fixed: Sequence[Work]) -> None:
        """A waiting job finds no place when its turn has come. fixed: jobs that are left as they are."""

    def settles_in_s(self, problem: Problem) -> float:
        return math.inf

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        return [(work, asked_options(work)) for work in sorted(waiting, key=lambda w: (*self.key(w), w.job.id))]


class Book:
    """left: what earlier jobs leave of the cluster. clear: what of it later jobs do not hold either. reserved:
    whether a blocked job has a reservation already; there is one in a pass."""

    def __init__(self, problem: Problem, order: Iterable[Work]) -> None:
        self.left, self.clear = Rooms.of(problem), Rooms(problem.nodes)
        self.clear.left = self.left.left
        self.later: Counter[str] = Counter()
        self.reserved = False
        for work in order:
            self.left.give(work.job.placement, work.job)
            self.later.update(work.job.placement)

    def keep(self, job: JobDemand) -> bool:
        """Its turn has come: whether it still has its place, which it then keeps."""
        self.later.subtract(job.placement)
        there = all(self.left.free(node) >= count for node, count in job.placement.items())
        kept = there and self.left.allows(job, job.devices)
        if kept:
            self.left.take(job.placement, job)
        self._see(job.placement)
        return kept

    def find(self, work: Work) -> tuple[Option, Placement] | None:
        """A place of its size, at the cost of later jobs only where there is no other; taken."""
        for rooms in (self.clear, self.left):
            for option in asked_options(work):
                if placement := rooms.find(option, work.job):
                    self.left.take(placement, work.job)
                    self._see(placement)
                    return option, placement
        return None

    def reserve(self, work: Work, free_in_s: Mapping[str, float]) -> None:
        """Nobody gets what is free on the nodes that the first blocked job will have. free_in_s: when the last holder
        of a node goes."""
        if self.reserved:
            return
        self.reserved = True
        for option in asked_options(work)[:1]:
            nodes = self.left.soonest(option, work.job, free_in_s)
            kept = {node: free for node in nodes if (free := self.clear.free(node))}
            self.left.take(kept)
            self._see(kept)

    def _see(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            now = max(0, self.left.free(node) - self.later[node])
            self.clear.take({node: self.clear.free(node) - now})


class Srtf(Preempting):
    """Shortest remaining time first. A running job is not behind where it would be if it waited: else two that stopped
    one another for a slower place would do so for ever."""

    def key(self, work: Work) -> tuple[float, ...]:
        ways = [work.takes_s(option) for option in asked_options(work)]
        if work.current is not None:
            ways.append(work.left_s)
        return (min(ways, default=0.0) / work.job.weight,)

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        left_s = self.key(work)[0] * work.job.weight
        return (Term("log2 of weight", math.log2(work.job.weight)), Term("-log2 of seconds left", -_log2(left_s)))


class Las(Preempting):
    """Least attained service first, in levels; within a level the older job."""

    def key(self, work: Work) -> tuple[float, ...]:
        level = sum(work.job.attained_gpu_s / work.job.weight >= limit for limit in LEVELS_GPU_S)
        return (float(level), -work.job.age_s)

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        level, younger = self.key(work)
        return Term("service it has had (level)", -level, 1), Term("seconds since submission", -younger, 2)


def _log2(value: float) -> float:
    return math.log2(max(value, 1e-9))


def by_age(work: Work) -> tuple[float, str]:
    """The older first; a job of twice the weight ages twice as fast."""
    return -work.job.age_s * work.job.weight, work.job.id


def asked_options(work: Work) -> list[Option]:
    """The plans of the size that was asked for, else of the next size above it, else of the largest; fastest first."""
    asked = work.job.asked or min((option.devices for option in work.options), default=0)
    sizes = sorted({option.devices for option in work.options})
    if not sizes:
        return []
    size = next((size for size in sizes if size >= asked), sizes[-1])
    return sorted((o for o in work.options if o.devices == size), key=lambda o: (o.step_time_s, o.kind, o.per_node))


def _grant(work: Work, option: Option, placement: Placement) -> Grant:
    return Grant(work.job.id, placement, option.plan, option.step_time_s)
