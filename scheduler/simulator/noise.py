"""Estimates that are wrong: how a policy fares when remaining work and step times are not what it is told."""

import random
from dataclasses import replace

from policies.jct.policy import Policy
from policies.jct.terms import Term
from policies.model.cluster import ClusterSnapshot, JobView, MeasuredMenu
from policies.model.decision import Decisions


class Misinformed:
    """A policy that sees each job's remaining work, and each measured row's step time, off by a constant factor.

    Factors are drawn once a job and once a row, evenly on a logarithmic scale from 1/(1+error) to 1+error.
    """

    def __init__(self, policy: Policy, error: float, chance: random.Random) -> None:
        self._policy, self._error, self._chance = policy, error, chance
        self._work: dict[int, float] = {}
        self._menus: dict[MeasuredMenu, MeasuredMenu] = {}

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        return self._policy.decide(replace(snapshot, jobs=tuple(map(self._seen, snapshot.jobs))), effort)

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        return self._policy.terms(replace(snapshot, jobs=tuple(map(self._seen, snapshot.jobs))))

    def _factor(self) -> float:
        return float((1 + self._error) ** self._chance.uniform(-1.0, 1.0))

    def _seen(self, job: JobView) -> JobView:
        if job.id not in self._work:
            self._work[job.id] = self._factor()
        menu, measured = job.menu, job.menu.measured
        if measured is not None:
            if measured not in self._menus:
                rows = (replace(row, step_time_s=row.step_time_s * self._factor()) for row in measured.rows)
                self._menus[measured] = MeasuredMenu(tuple(rows))
            menu = replace(menu, measured=self._menus[measured])
        return replace(job, menu=menu, remaining_steps=max(1, round(job.remaining_steps * self._work[job.id])))
