"""What a job is offered: its menu, corrected by what its attempts have shown, with what a change from here costs.

A change of replicas while training goes on moves one stage's state to each newcomer; a change of stages moves all of
it; a move to other devices and a preemption save, start anew and load.
"""

from functools import lru_cache
from math import exp, log
from statistics import median

from policies.ir.plan import ParallelPlan
from policies.jct.explored import NOTCH, explored, is_command
from policies.jct.ledger import Ledger
from policies.jct.menu import Menu
from policies.jct.problem import Option, Options
from policies.model.cluster import JobView, MenuRequest, Observed
from policies.model.device import DeviceKind

LIVE_S = 1.0
"""How long a live change holds training up besides the state it moves."""


def offered(job: JobView, ledger: Ledger, slowdown: float = 1.0) -> Options:
    """Measured rows where there are any, else the planner's.

    slowdown: predicted, of the devices that the job runs on: it is no news about the job itself.
    """
    if job.menu.measured is not None:
        menu = _measured(job.menu, ledger.kinds_of(job))
    else:
        menu = _planned(ledger.menu(job), job.plan if job.live else None)
    if is_command(job.menu):
        return explored(menu, job.observed)
    return _scaled(menu, _notches(menu, job.observed, slowdown))


@lru_cache(maxsize=4096)
def _measured(request: MenuRequest, kinds: tuple[DeviceKind, ...]) -> Options:
    assert request.measured is not None
    names = {kind.name for kind in kinds}
    return Options(
        Option(row.kind, row.devices, row.step_time_s, row.restart_s, row.plan, row.per_node)
        for row in request.measured.rows
        if row.kind in names and request.min_devices <= row.devices <= request.max_devices
    )


@lru_cache(maxsize=4096)
def _planned(menu: Menu, now: ParallelPlan | None) -> Options:
    """now: the plan from which the job can change without stopping, if it can."""
    found = []
    for entry in menu.entries:
        load_s = entry.resize_s - entry.startup_s
        cost_s = entry.resize_s
        if now is not None and entry.plan != now:
            cost_s = LIVE_S + (load_s / len(now.stages) if _same_cuts(entry.plan, now) else load_s)
        found.append(Option(entry.device_kind, entry.devices, entry.step_time_s, cost_s, entry.plan))
    return Options(found)


def _same_cuts(a: ParallelPlan, b: ParallelPlan) -> bool:
    return [stage.layers for stage in a.stages] == [stage.layers for stage in b.stages]


def _notches(menu: Options, observed: tuple[Observed, ...], slowdown: float) -> int:
    """How far the job's steps are from what was predicted: the median over the plans it has run."""
    if not observed:
        return 0
    predicted = {(option.kind, option.devices, option.plan): option.step_time_s for option in menu}
    ratios = [
        log(seen.step_time_s / slowdown / predicted[key])
        for seen in observed
        if (key := (seen.kind, seen.devices, seen.plan)) in predicted and seen.step_time_s > 0 and predicted[key] > 0
    ]
    return round(median(ratios) / NOTCH) if ratios else 0


@lru_cache(maxsize=4096)
def _scaled(menu: Options, notches: int) -> Options:
    if notches == 0:
        return menu
    ratio = exp(notches * NOTCH)
    return Options(
        Option(o.kind, o.devices, o.step_time_s * ratio, o.restart_s, o.plan, o.per_node) for o in menu
    )
