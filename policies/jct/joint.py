"""`jct`: GPUs, plan and place of every job in one decision, so that the sum of weighted completion times falls.

One price holds a pass together: a device-second that a job takes is one that all others wait for, so it costs
(their weight) / (devices of the cluster) seconds. Each job wants the option of least

    seconds to its end x (its weight + price x devices),

restart included for every option but the one it runs. From this follow small sizes under load, large ones in an idle
cluster, and a change only where it pays for its restart. One pass:

1. Running jobs keep what they have.
2. Waiting jobs, least device-seconds per weight first, start with their best option that fits now.
3. For those that do not fit, others may make room: see `concessions`.
4. If nobody waits, running jobs change to better options.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from policies.jct.concessions import make_room
from policies.jct.problem import Grant, Option, Placement, Problem
from policies.jct.rooms import Rooms
from policies.jct.work import Work, look_at


@dataclass(frozen=True, slots=True)
class Settings:
    """price: of a device-second, in units of (active weight / devices). gain: how many times better a change must be.

    settled_s: a job is left alone for so long after a change. patience: a waiting job takes an option at most so
    many times as costly as its best.
    """

    price: float = 2.0
    gain: float = 1.1
    settled_s: float = 600.0
    patience: float = 2.0


@dataclass(slots=True)
class Pass:
    """What one pass knows and has decided."""

    settings: Settings
    rooms: Rooms
    works: dict[str, Work]
    price: float
    grants: dict[str, tuple[Option | None, Placement]]
    effort: int

    def cost(self, work: Work, option: Option) -> float:
        """Of ending by an option that is new to the job."""
        return work.takes_s(option) * (work.job.weight + self.price * option.devices)

    def present_cost(self, work: Work) -> float:
        assert work.current is not None
        return work.left_s * (work.job.weight + self.price * work.current.devices)

    def movable(self, work: Work) -> bool:
        job = work.job
        return (
            work.current is not None
            and not job.frozen
            and job.id not in self.grants
            and job.since_change_s >= self.settings.settled_s
        )

    def best_fit(self, work: Work) -> tuple[Option, Placement] | None:
        """The best option that fits now, unless it is so bad that waiting is better."""
        priced = sorted((self.cost(work, option), number) for number, option in enumerate(work.options))
        for cost, number in priced:
            if cost > self.settings.patience * priced[0][0]:
                break
            option = work.options[number]
            if placement := self.rooms.find(option, work.job.avoid):
                return option, placement
        return None

    def grant(self, work: Work, option: Option | None, placement: Placement) -> None:
        self.grants[work.job.id] = (option, placement)
        self.rooms.take(placement)


class Joint:
    """See the module's recipe."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms = Rooms(problem.nodes)
        works = {job.id: look_at(job, rooms.kinds) for job in problem.jobs}
        devices = max(1, sum(node.devices for node in problem.nodes))
        weight = sum(job.weight for job in problem.jobs)
        now = Pass(
            self.settings, rooms, works, self.settings.price * weight / devices, {}, effort
        )
        blocked = _start(now, _in_order(works[job.id] for job in problem.jobs if not job.placement))
        for work in blocked:
            make_room(now, work)
        _improve(now)
        return tuple(
            Grant(id, placement, option.plan if option else None, option.step_time_s if option else None)
            for id, (option, placement) in now.grants.items()
        )


def _in_order(works: Iterable[Work]) -> list[Work]:
    ready = [work for work in works if work.options]
    return sorted(ready, key=lambda work: (work.least_gpu_s / work.job.weight, -work.job.age_s, work.job.id))


def _start(now: Pass, waiting: list[Work]) -> list[Work]:
    blocked: list[Work] = []
    for work in waiting:
        if found := now.best_fit(work):
            now.grant(work, *found)
        else:
            blocked.append(work)
    return blocked


def _improve(now: Pass) -> None:
    """Change running jobs to better options, those first that gain most per device."""
    wanted: list[tuple[float, str, Option]] = []
    for work in now.works.values():
        if not now.movable(work):
            continue
        assert work.current is not None
        present = now.present_cost(work)
        for option in work.options:
            cost = now.cost(work, option)
            if option.devices > work.current.devices and cost * now.settings.gain < present:
                wanted.append(((cost - present) / (option.devices - work.current.devices), work.job.id, option))
    for _, id, option in sorted(wanted, key=lambda want: want[:2]):
        if id in now.grants:
            continue
        work = now.works[id]
        now.rooms.give(work.job.placement)
        if placement := now.rooms.find(option, work.job.avoid):
            now.grant(work, option, placement)
        else:
            now.rooms.take(work.job.placement)
    for id in dict.fromkeys(id for _, id, _ in sorted(wanted, key=lambda want: want[:2])):
        if id not in now.grants:
            make_room(now, now.works[id])
