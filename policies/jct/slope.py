"""`slope`: Rubick's rule (MLSys'25). Devices go where the sensitivity curve is steepest; remaining work is not known.

Every job first gets its smallest size, in order of arrival; then devices go, one step after another, to the job whose
speed, relative to its speed at the asked size, grows most per device. A running job is changed only for a gain, or
where its devices bring more to others, and only when its restart is small beside its life.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from policies.jct.ordered import asked_options, by_age
from policies.jct.problem import NOTHING, Grant, Option, Problem
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work, look_at, settles_in_s, settles_s

GAIN = 1.2
"""How much faster a changed job must run."""
LIFE = 5.0
"""A job is changed when it has lived at least so many restarts since its last change."""


class Slope:
    """See the module's recipe."""

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms = Rooms.of(problem)
        works = [work for job in problem.jobs if not job.fixed and (work := look_at(job, rooms.kinds)).options]
        works.sort(key=by_age)
        free = [work for work in works if work.current is None or settles_s(work.job, work.current, LIFE) <= 0.0]
        for work in free:
            rooms.give(work.job.placement, work.job)
        targets = _targets(free, Counter(rooms.free_of))
        return _place(free, targets, rooms)

    def settles_in_s(self, problem: Problem) -> float:
        return settles_in_s(problem, LIFE)

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        """The older first, with its smallest sizes first."""
        return [(work, work.options) for work in sorted(waiting, key=by_age)]

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        return (Term("seconds since submission x weight", work.job.age_s * work.job.weight),)


def _targets(works: list[Work], left: Counter[str]) -> dict[str, Option]:
    targets: dict[str, Option] = {}
    for work in works:
        smallest = next((o for o in work.options if o.devices <= left[o.kind]), None)
        if smallest is not None:
            targets[work.job.id] = smallest
            left[smallest.kind] -= smallest.devices
    by_id = {work.job.id: work for work in works}
    steps = [(-gain, id, option) for id in targets for gain, option in _steps(by_id[id], targets[id], left)]
    heap = [(gain, id, number, option) for number, (gain, id, option) in enumerate(steps)]
    heapify(heap)
    count = len(heap)
    while heap:
        _, id, _, option = heappop(heap)
        now = targets[id]
        if option.devices <= now.devices or option.devices - now.devices > left[option.kind]:
            continue
        targets[id] = option
        left[option.kind] -= option.devices - now.devices
        for gain, further in _steps(by_id[id], option, left):
            heappush(heap, (-gain, id, count, further))
            count += 1
    return targets


def _steps(work: Work, now: Option, left: Counter[str]) -> list[tuple[float, Option]]:
    """Growth that would fit: relative speed per device, and what it grows to."""
    asked_s = asked_options(work)[0].step_time_s
    return [
        ((asked_s / option.step_time_s - asked_s / now.step_time_s) / (option.devices - now.devices), option)
        for option in work.options
        if option.kind == now.kind
        and now.devices < option.devices <= now.devices + left[now.kind]
        and option.step_time_s < now.step_time_s
    ]


def _place(works: list[Work], targets: dict[str, Option], rooms: Rooms) -> tuple[Grant, ...]:
    grants: list[Grant] = []
    moving: list[Work] = []
    for work in works:
        target, current = targets.get(work.job.id), work.current
        keeps = current is not None and target is not None and (
            current.devices == target.devices
            or (target.devices > current.devices and current.step_time_s < GAIN * target.step_time_s)
        )  # fmt: skip
        if keeps:
            rooms.take(work.job.placement, work.job)
        else:
            moving.append(work)
    for work in sorted(moving, key=lambda w: (-targets[w.job.id].devices if w.job.id in targets else 0, w.job.id)):
        size = targets[work.job.id].devices if work.job.id in targets else 0
        found = next(
            ((o, p) for o in reversed(work.options) if o.devices <= size and (p := rooms.find(o, work.job))), None
        )
        if found is not None:
            rooms.take(found[1], work.job)
            if found[1] != work.job.placement or found[0] != work.current:
                grants.append(Grant(work.job.id, found[1], found[0].plan, found[0].step_time_s))
        elif work.job.placement:
            grants.append(Grant(work.job.id, NOTHING))
    return tuple(grants)
