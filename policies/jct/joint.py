"""`jct`: GPUs, plan and place of every job in one decision, so that the sum of weighted completion times falls.

One price holds a pass together: a device-second that a job takes is one that all others wait for, so it costs them
(their weight) / (devices of the cluster) seconds, and less as far as nobody wants the devices. Each job wants the
option of least

    seconds to its end x (its weight + price x others' weight x devices),

restart included for every option but the one it runs. From this follow small sizes under load, large ones in an idle
cluster, and a change only where it pays for its restart. One pass:

1. Running jobs keep what they have.
2. Waiting jobs, least device-seconds per weight first, start with their best option that fits now.
3. A job that has waited for longer than its bound comes before all others, the most overdue first; while it does not
   fit, the nodes that are soonest free are kept for it. So no stream of other jobs starves it: see `patience`.
4. For those that do not fit, others may make room: see `concessions`.
5. Running jobs change to better options.

Where hardly any job has a size to choose, 1 to 3 are the order of `rigid` instead, and nobody pauses to make room.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policies.jct.concessions import keep_nodes, make_room
from policies.jct.patience import PATIENCE, Patience, overdue_s, starves
from policies.jct.problem import Grant, Option, Placement, Problem
from policies.jct.rigid import Rigid, are_rigid, order, terms
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work, look_at, settles_in_s, settles_s


@dataclass(frozen=True, slots=True)
class Settings:
    """price: of a device-second, in units of (others' weight / devices). gain: how many times better a change must be.

    unsure_gain, unsure_growth: the same, and to at most how many times its devices, where remaining work is unknown.
    settled_restarts: a job is left alone after a change for so many times as long as a restart takes it. patience: a
    waiting job takes an option at most so many times as costly as its best. bound: on waiting.
    """

    price: float = 2.0
    gain: float = 1.2
    unsure_gain: float = 1.3
    unsure_growth: int = 2
    settled_restarts: float = 2.3
    patience: float = 2.0
    bound: Patience = PATIENCE


@dataclass(slots=True)
class Pass:
    """What one pass knows and has decided. running: the works that have devices; thousands may wait beside them.
    price: of a device-second for each unit of others' weight. weight: of all.
    calmer: jobs that go to calmer devices. starved: jobs that have waited for longer than their bound. may_pause:
    whether jobs may pause to make room.
    """

    settings: Settings
    rooms: Rooms
    works: dict[str, Work]
    running: tuple[Work, ...]
    price: float
    weight: float
    grants: dict[str, tuple[Option | None, Placement]]
    effort: int
    calmer: set[str] = field(default_factory=set)
    starved: frozenset[str] = frozenset()
    may_pause: bool = True

    def rate(self, work: Work, option: Option) -> float:
        """Priced seconds that a second of running so costs; a job's own weight does not wait for it."""
        return work.job.weight + self.price * (self.weight - work.job.weight) * option.devices

    def cost(self, work: Work, option: Option) -> float:
        """Of ending by an option that is new to the job."""
        return work.takes_s(option) * self.rate(work, option)

    def by_cost(self, work: Work) -> list[Option]:
        return sorted(work.options, key=lambda option: self.cost(work, option))

    def present_cost(self, work: Work) -> float:
        assert work.current is not None
        return work.left_s * self.rate(work, work.current)

    def movable(self, work: Work) -> bool:
        job = work.job
        return (
            work.current is not None
            and bool(work.options)
            and not job.frozen
            and job.id not in self.grants
            and self.settles_s(work) <= 0.0
        )

    def settles_s(self, work: Work) -> float:
        """How long a running job is still left alone."""
        assert work.current is not None
        return settles_s(work.job, work.current, self.settings.settled_restarts)

    def best_fit(self, work: Work) -> tuple[Option, Placement] | None:
        """The best option that fits now, unless it is so bad that waiting is better: it is not for a calmer node where
        none is calmer."""
        priced = sorted((self.cost(work, option), number) for number, option in enumerate(work.options))
        calmest = self.rooms.calmest({option.kind for option in work.options})
        for cost, number in priced:
            if cost > self.settings.patience * priced[0][0]:
                break
            option = work.options[number]
            placement = self.rooms.find(option, work.job)
            slowed = self.rooms.slowdown(placement) / calmest
            if placement and cost * slowed <= self.settings.patience * priced[0][0]:
                return option, placement
        return None

    def grant(self, work: Work, option: Option | None, placement: Placement) -> None:
        self.grants[work.job.id] = (option, placement)
        self.rooms.take(placement, work.job)


class Joint:
    """See the module's recipe."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms = Rooms.of(problem)
        works = {job.id: look_at(job, rooms.kinds) for job in problem.jobs}
        now = self._pass(problem, rooms, works, effort)
        waiting = [work for job in problem.jobs if job.waits and (work := works[job.id]).options]
        rigid = are_rigid(works.values())
        blocked = self._by_length(now, problem, waiting) if rigid else self._by_area(now, waiting)
        for work in blocked:
            make_room(now, work)
        _improve(now)
        return tuple(
            Grant(
                id, placement, option.plan if option else None, option.step_time_s if option else None, id in now.calmer
            )
            for id, (option, placement) in now.grants.items()
        )

    def _by_area(self, now: Pass, waiting: Sequence[Work]) -> list[Work]:
        """Start what fits, and return what does not."""
        starved = [work for work in waiting if starves(self.settings.bound, work)]
        starved.sort(key=lambda work: (-overdue_s(self.settings.bound, work), work.job.id))
        now.starved = frozenset(work.job.id for work in starved)
        blocked = _start(now, starved)
        kept = keep_nodes(now, blocked[0]) if blocked else {}
        now.rooms.take(kept)
        blocked += _start(now, _in_order(work for work in waiting if work.job.id not in now.starved))
        now.rooms.give(kept)
        return blocked

    def _by_length(self, now: Pass, problem: Problem, waiting: Sequence[Work]) -> list[Work]:
        """The same where hardly any job has a size to choose."""
        now.may_pause = False
        for grant in Rigid(self.settings.bound, self.settings.settled_restarts).allocate(problem, now.effort):
            work = now.works[grant.id]
            now.rooms.give(work.job.placement, work.job)
            option = next((o for o in work.options if (o.plan, o.step_time_s) == (grant.plan, grant.step_time_s)), None)
            now.grant(work, option, grant.placement)
        blocked = sorted((work for work in waiting if work.job.id not in now.grants), key=order)
        kept = any(starves(self.settings.bound, work) for work in blocked)
        return blocked if kept else _start(now, blocked)

    def settles_in_s(self, problem: Problem) -> float:
        return settles_in_s(problem, self.settings.settled_restarts)

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        """The order of starts; options by what they cost."""
        now = self._pass(problem, Rooms.of(problem), {work.job.id: work for work in waiting}, 0)
        among = [look_at(job, now.rooms.kinds) for job in problem.jobs]
        ordered = sorted(waiting, key=order) if are_rigid(among) else _in_order(waiting)
        return [(work, now.by_cost(work)) for work in ordered]

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        """Of the order of starts."""
        if not work.options:
            return ()
        if are_rigid(among):
            return terms(work)
        weight = Term("log2 of weight", math.log2(work.job.weight))
        return weight, Term("-log2 of GPU-seconds left", -math.log2(max(work.least_gpu_s, 1e-9)))

    def _pass(self, problem: Problem, rooms: Rooms, works: dict[str, Work], effort: int) -> Pass:
        devices = max(1, sum(node.devices for node in problem.nodes))
        weight = sum(job.weight for job in problem.jobs) + problem.others_weight
        price = self.settings.price * _pressure(works.values(), problem.others_devices, devices) / devices
        running = tuple(work for work in works.values() if work.current is not None)
        return Pass(self.settings, rooms, works, running, price, weight, {}, effort)


def _pressure(works: Iterable[Work], others: int, devices: int) -> float:
    """How much of the cluster is wanted: what is held, and the least that the waiting need; at most 1."""
    wanted = others + sum(
        work.job.devices or min((option.devices for option in work.options), default=0) for work in works
    )
    return min(1.0, wanted / devices)


def _in_order(works: Iterable[Work]) -> list[Work]:
    return sorted(works, key=lambda work: (work.least_gpu_s / work.job.weight, -work.job.age_s, work.job.id))


def _start(now: Pass, waiting: list[Work]) -> list[Work]:
    blocked: list[Work] = []
    for work in waiting:
        if found := now.best_fit(work):
            now.grant(work, *found)
        else:
            blocked.append(work)
    return blocked


def _improve(now: Pass) -> None:
    """Change running jobs to better options: that job first which gains most per device it adds, to its best that
    fits; where none fits, others may make room. A neighbour is a reason to go where it is calmer, and for nothing else:
    nobody makes room for that."""
    wanted: list[tuple[float, str, list[Option]]] = []
    bounds: dict[str, float] = {}
    for work in now.running:
        if not now.movable(work):
            continue
        assert work.current is not None
        present = now.present_cost(work)
        priced = sorted((now.cost(work, option), number) for number, option in enumerate(work.options))
        gain = now.settings.gain if work.known else now.settings.unsure_gain
        most = work.current.devices * now.settings.unsure_growth if not work.known else 1 << 30
        better = [
            option
            for cost, number in priced
            if cost * gain < present and (option := work.options[number]).devices <= most
        ]
        if better:
            more = max(1, better[0].devices - work.current.devices)
            wanted.append(((now.cost(work, better[0]) - present) / more, work.job.id, better))
            bounds[work.job.id] = present / gain
    wanted.sort(key=lambda want: want[:2])
    for _, id, better in wanted:
        work = now.works[id]
        now.rooms.give(work.job.placement, work.job)
        for option in better:
            placement = now.rooms.find(option, work.job)
            slowed = now.rooms.slowdown(placement, given=work.job.placement)
            if placement and now.cost(work, option) * slowed < bounds[id]:
                now.grant(work, option, placement)
                now.calmer.update([id] if slowed < work.job.slowdown else [])
                break
        else:
            now.rooms.take(work.job.placement, work.job)
    for _, id, better in wanted:
        work = now.works[id]
        if id not in now.grants and now.cost(work, better[0]) < bounds[id] / work.job.slowdown:
            make_room(now, work)
