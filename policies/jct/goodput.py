"""`goodput`: Sia's integer programme (SOSP'23; FORMULAS B5.5). It knows rates, never remaining work.

Choose at most one option a job, within the devices of each kind, so that the sum of

    weight x (speed over the job's slowest x r) ** p,   r = 1 for what a job has, else the share of its life that a
                                                        restart leaves

is least, with a penalty for each job that gets nothing. p is negative: the worst-off count most.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from policies.jct.ordered import by_age
from policies.jct.problem import NOTHING, Grant, Option, Problem
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work, look_at

POWER = -0.5
UNALLOCATED = 1.1


class Goodput:
    """Solved exactly up to `effort` nodes of the search, else greedily."""

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        rooms = Rooms.of(problem)
        works = [work for job in problem.jobs if not job.fixed and (work := look_at(job, rooms.kinds)).options]
        for work in works:
            rooms.give(work.job.placement, work.job)
        choices = [(work, o) for work in works for o in _offered(work) if o.kind in rooms.free_of]
        if not choices:
            return ()
        chosen = _solve(works, choices, rooms, effort) or _greedy(choices, rooms)
        return _place(works, chosen, rooms)

    def settles_in_s(self, problem: Problem) -> float:
        return math.inf

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        """The older first, with its smallest sizes first."""
        return [(work, work.options) for work in sorted(waiting, key=by_age)]

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        return (Term("seconds since submission x weight", work.job.age_s * work.job.weight),)


def _offered(work: Work) -> list[Option]:
    """One option a size and kind, and what the job has."""
    best: dict[tuple[str, int], Option] = {}
    for option in work.options:
        best.setdefault((option.kind, option.devices), option)
    return [*best.values(), *([work.current] if work.current is not None else [])]


def _cost(work: Work, option: Option) -> float:
    slowest = max(other.step_time_s for other in work.options)
    job = work.job
    kept = 1.0
    if option is not work.current:
        lived = max(job.age_s - job.restarts * option.restart_s, 0.0)
        kept = lived / max(job.age_s + option.restart_s, 1e-9) if job.placement else 1.0
    worth = float((slowest / option.step_time_s * max(kept, 1e-3)) ** POWER)
    return job.weight * (worth - UNALLOCATED - 1.0)


def _solve(
    works: Sequence[Work], choices: list[tuple[Work, Option]], rooms: Rooms, effort: int
) -> dict[str, Option] | None:
    row_of = {work.job.id: number for number, work in enumerate(works)}
    kinds = sorted(rooms.free_of)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for column, (work, option) in enumerate(choices):
        rows += [row_of[work.job.id], len(works) + kinds.index(option.kind)]
        columns += [column, column]
        values += [1.0, float(option.devices)]
        for number, holder in enumerate(rooms.left):
            if holder in work.job.holders:
                rows.append(len(works) + len(kinds) + number)
                columns.append(column)
                values.append(float(option.devices))
    shape = (len(works) + len(kinds) + len(rooms.left), len(choices))
    limits = [*(rooms.free_of[kind] for kind in kinds), *(max(0, left) for left in rooms.left.values())]
    most = np.array([1.0] * len(works) + [float(limit) for limit in limits])
    found = milp(
        np.array([_cost(work, option) for work, option in choices]),
        integrality=np.ones(len(choices), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(csr_array((values, (rows, columns)), shape=shape), -np.inf, most),
        options={"node_limit": max(1, effort), "mip_rel_gap": 1e-3},
    )
    if found.x is None:
        return None
    return {work.job.id: option for (work, option), x in zip(choices, found.x, strict=True) if x > 0.5}


def _greedy(choices: list[tuple[Work, Option]], rooms: Rooms) -> dict[str, Option]:
    """Most gain per device first."""
    left, capped = dict(rooms.free_of), dict(rooms.left)
    chosen: dict[str, Option] = {}
    for work, option in sorted(choices, key=lambda c: (_cost(*c) / c[1].devices, c[0].job.id)):
        holders = [holder for holder in work.job.holders if holder in capped]
        fits = option.devices <= min((capped[holder] for holder in holders), default=left[option.kind])
        if work.job.id not in chosen and fits and option.devices <= left[option.kind]:
            chosen[work.job.id] = option
            left[option.kind] -= option.devices
            for holder in holders:
                capped[holder] -= option.devices
    return chosen


def _place(works: list[Work], chosen: dict[str, Option], rooms: Rooms) -> tuple[Grant, ...]:
    """What is kept keeps its place; the rest is placed largest first, and waits where no nodes fit."""
    grants: list[Grant] = []
    moving: list[Work] = []
    for work in works:
        if work.current is not None and chosen.get(work.job.id) == work.current:
            rooms.take(work.job.placement, work.job)
        else:
            moving.append(work)
    for work in sorted(moving, key=lambda w: (-chosen[w.job.id].devices if w.job.id in chosen else 0, w.job.id)):
        option = chosen.get(work.job.id)
        placement = rooms.find(option, work.job) if option is not None else NOTHING
        if option is not None and not placement:
            same = [o for o in work.options if (o.kind, o.devices) == (option.kind, option.devices)]
            option, placement = next(
                ((o, found) for o in same if (found := rooms.find(o, work.job))), (option, NOTHING)
            )
        rooms.take(placement, work.job)
        if placement:
            assert option is not None
            grants.append(Grant(work.job.id, placement, option.plan, option.step_time_s))
        elif work.job.placement:
            grants.append(Grant(work.job.id, NOTHING))
    return tuple(grants)
