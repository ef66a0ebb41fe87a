"""Step times that nobody knows beforehand: policies see what jobs have shown so far, and estimates of the rest.

A job shows the row that it runs. All jobs of one program (one menu) share what they show. What was not shown is read
from the program's speed curve, times what its kind of device is worth beside the others. A program that has shown
nothing is taken to be halfway between two guesses: as fast on one device as the middle one of all others, and with as
much work in its steps as the middle one has.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median

from policies.jct.policy import Policy
from policies.jct.speed import SpeedCurve, Way, fit
from policies.model.cluster import ClusterSnapshot, JobState, JobView, MeasuredMenu, MeasuredRow
from policies.model.decision import Decisions

ROUNDS = 2
ROWS = 8
"""Rows that a curve is fitted to: the newest."""
HALF = 0.5
"""How many programs' or rows' worth of evidence stands against a difference between kinds of device."""

Spot = tuple[str, tuple[int, ...]]
"""A kind, and devices on each used node."""


@dataclass(slots=True)
class Shown:
    """What jobs of one program have shown. steps: of its first job. rows: seconds a step by kind and place."""

    steps: float = 1.0
    rows: dict[Spot, float] = field(default_factory=dict)
    curve: SpeedCurve | None = None
    offsets: dict[str, float] = field(default_factory=dict)


class Estimating:
    """A policy that is not told measured step times but those of rows that jobs have run, and estimates."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shown: dict[MeasuredMenu, Shown] = defaultdict(Shown)
        self._kinds: dict[str, float] = {}
        self._menus: dict[MeasuredMenu, MeasuredMenu] = {}

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        kind_of = {device.id: device.kind for device in snapshot.devices}
        node_of = {device.id: device.node for device in snapshot.devices}
        news = False
        for job in snapshot.jobs:
            if job.menu.measured is not None and job.menu.measured not in self._shown:
                self._shown[job.menu.measured].steps = float(job.remaining_steps)
            if job.menu.measured is not None and job.state == JobState.RUNNING and job.preemptible:
                news |= self._look(job, job.menu.measured, kind_of, node_of)
        if news or not self._menus:
            self._learn()
        return self._policy.decide(replace(snapshot, jobs=tuple(map(self._seen, snapshot.jobs))), effort)

    def _look(self, job: JobView, menu: MeasuredMenu, kind_of: dict[str, str], node_of: dict[str, str]) -> bool:
        """Whether the job shows something new."""
        counts: dict[str, int] = {}
        for device in job.devices:
            if device in node_of:
                counts[node_of[device]] = counts.get(node_of[device], 0) + 1
        kind, shape = kind_of.get(job.devices[0], "") if job.devices else "", sorted(counts.values())
        same = (row for row in menu.rows if row.kind == kind and row.plan == job.plan)
        row = next((row for row in same if sorted(row.per_node) == shape), None)
        if row is None or (kind, row.per_node) in self._shown[menu].rows:
            return False
        self._shown[menu].rows[kind, row.per_node] = row.step_time_s
        return True

    def _learn(self) -> None:
        """Curves given kinds, then kinds given curves, from what all programs have shown."""
        self._menus.clear()
        shown = [one for one in self._shown.values() if one.rows]
        for one in shown:
            self._bend(one)
        for _ in range(ROUNDS):
            leaning: dict[str, list[float]] = defaultdict(list)
            for one in shown:
                for kind, offset in one.offsets.items():
                    leaning[kind].append(offset)
            for kind, offsets in leaning.items():
                self._kinds[kind] = self._kinds.get(kind, 0.0) + sum(offsets) / (len(offsets) + HALF)
            for one in shown:
                self._bend(one)

    def _bend(self, one: Shown) -> None:
        """Fit a program's curve, all kinds made alike; by what its rows on a kind differ is its offset there."""
        newest = list(one.rows.items())[-ROWS:]
        rows = [(Way(shape), seconds / math.exp(self._kinds.get(kind, 0.0))) for (kind, shape), seconds in newest]
        one.curve = fit(rows)
        apart: dict[str, list[float]] = defaultdict(list)
        for ((kind, _), _), (way, seconds) in zip(newest, rows, strict=True):
            apart[kind].append(math.log(seconds / one.curve.step_time_s(way)))
        one.offsets = {kind: sum(found) / (len(found) + HALF) for kind, found in apart.items()}

    def _seen(self, job: JobView) -> JobView:
        if (menu := job.menu.measured) is None:
            return job
        if menu not in self._menus:
            self._menus[menu] = MeasuredMenu(tuple(self._row(menu, row) for row in menu.rows))
        return replace(job, menu=replace(job.menu, measured=self._menus[menu]))

    def _row(self, menu: MeasuredMenu, row: MeasuredRow) -> MeasuredRow:
        one = self._shown[menu]
        if (row.kind, row.per_node) in one.rows:
            return row
        curve = one.curve if one.curve is not None else self._stranger(one.steps)
        factor = math.exp(self._kinds.get(row.kind, 0.0) + one.offsets.get(row.kind, 0.0))
        return replace(row, step_time_s=curve.step_time_s(Way(row.per_node)) * factor)

    def _stranger(self, steps: float) -> SpeedCurve:
        """Of a program that has shown nothing, and has so many steps."""
        known = [(one.steps, one.curve.step_time_s(Way((1,)))) for one in self._shown.values() if one.curve is not None]
        if not known:
            return fit([(Way((1,)), 1.0)])
        as_fast_s = median(alone_s for _, alone_s in known)
        as_long_s = median(count * alone_s for count, alone_s in known) / steps
        return fit([(Way((1,)), math.sqrt(as_fast_s * as_long_s))])
