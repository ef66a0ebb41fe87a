"""Making room for a job: others shrink, move or pause where that costs less than it gains.

The nodes that are cheapest to clear are found, the jobs there set aside, the job is placed, and those set aside
are placed again, smaller or elsewhere, or pause. All is compared in one unit, priced seconds (see `joint`): what the
job gains over going on as it is (or waiting until enough others have ended) against what the others lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.jct.clearing import Clearing, by_node
from policies.jct.problem import NOTHING, Option, Placement
from policies.jct.work import Work

if TYPE_CHECKING:
    from policies.jct.joint import Pass

WAYS = 4
"""Options tried for a job, best first."""

NEVER = float("inf")
"""What pausing a job costs that may not be paused."""

FAR_S = 1e6
"""Stands for a wait whose end is not in sight."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Who does what, and what it gains in priced seconds."""

    gain: float
    option: Option
    placement: Placement
    others: tuple[tuple[Work, Option | None, Placement], ...]


def make_room(now: Pass, work: Work) -> bool:
    """Commit the best deal for a waiting or a running job, if one pays."""
    if now.effort <= 0:
        return False
    best: Deal | None = None
    now.rooms.give(work.job.placement, work.job)
    on_node = by_node([other for other in now.running if now.movable(other) and other is not work])
    for option in now.by_cost(work)[:WAYS]:
        if now.effort <= 0:
            break
        deal = _deal(now, work, option, on_node)
        if deal is not None and deal.gain > 0 and (best is None or deal.gain > best.gain):
            best = deal
    if best is None:
        now.rooms.take(work.job.placement, work.job)
        return False
    for other, _, _ in best.others:
        now.rooms.give(other.job.placement, other.job)
    now.grant(work, best.option, best.placement)
    for other, changed, placement in best.others:
        now.grant(other, changed, placement)
    return True


def keep_nodes(now: Pass, work: Work) -> dict[str, int]:
    """What is free on the nodes that a starved job will get: those where the last job ends, or may be set aside,
    soonest."""
    free_in_s: dict[str, float] = {}
    for other in now.works.values():
        wait_s = 0.0
        if other.current is not None:
            settles_s = max(0.0, now.settles_s(other))
            wait_s = min(other.left_s, settles_s) if not other.job.frozen else other.left_s
        for node in other.job.placement:
            free_in_s[node] = max(free_in_s.get(node, 0.0), wait_s)
    option = min(work.options, key=lambda option: (now.cost(work, option), option.devices))
    nodes = now.rooms.soonest(option, work.job, free_in_s)
    return {node: free for node in nodes if (free := now.rooms.free(node))}


def _deal(now: Pass, work: Work, option: Option, on_node: Mapping[str, Sequence[Work]]) -> Deal | None:
    takes_s = work.takes_s(option)
    starved = work.job.id in now.starved
    before = now.present_cost(work) if work.current is not None else None
    if before is not None and before <= now.cost(work, option) * now.settings.gain:
        return None
    clearing = _clearing(now, option, takes_s, on_node, starved)
    victims = clearing.victims(option, work.job)
    now.effort -= clearing.visits
    if not victims and work.current is None:
        return None
    wait_s = 0.0 if before is not None else FAR_S if starved else _wait_s(now, work, option)
    for victim in victims:
        now.rooms.give(victim.job.placement, victim.job)
    placement = now.rooms.find(option, work.job)
    others: list[tuple[Work, Option | None, Placement]] = []
    lost = 0.0
    if placement:
        now.rooms.take(placement, work.job)
        others, lost = _place_again(now, victims, takes_s)
        for other, _, again in others:
            now.rooms.give(again, other.job)
        now.rooms.give(placement, work.job)
    for victim in victims:
        now.rooms.take(victim.job.placement, victim.job)
    if not placement:
        return None
    after = now.cost(work, option)
    if before is None:
        before = wait_s * work.job.weight + min(now.cost(work, other) for other in work.options)
    return Deal(before - after - now.settings.gain * lost, option, placement, tuple(others))


def _place_again(
    now: Pass, victims: Sequence[Work], pause_s: float
) -> tuple[list[tuple[Work, Option | None, Placement]], float]:
    """Where those set aside go, taken there, and what they lose in priced seconds."""
    others: list[tuple[Work, Option | None, Placement]] = []
    lost = 0.0
    for victim in sorted(victims, key=lambda victim: (-victim.least_gpu_s / victim.job.weight, victim.job.id)):
        stays = victim.job.shield or not now.may_pause
        paused = NEVER if stays else victim.job.weight * pause_s + _restart_cost(now, victim)
        found = now.best_fit(victim)
        if found is not None:
            delay = now.cost(victim, found[0]) - now.present_cost(victim)
            if delay < paused:
                now.rooms.take(found[1], victim.job)
                others.append((victim, *found))
                lost += delay
                continue
        others.append((victim, None, NOTHING))
        lost += paused
    return others, lost


def _clearing(
    now: Pass, option: Option, pause_s: float, on_node: Mapping[str, Sequence[Work]], starved: bool
) -> Clearing:
    """Where its devices are free already, only on other nodes, all who are set aside may go on there."""
    if now.rooms.free_of.get(option.kind, 0) >= option.devices:
        pause_s = 0.0
    return Clearing(
        now.rooms,
        on_node,
        may=lambda work: starved or work.left_s > pause_s,
        cost=lambda work: work.job.weight * pause_s + _restart_cost(now, work),
        first=lambda work: (-work.left_s,),
    )


def _restart_cost(now: Pass, work: Work) -> float:
    assert work.current is not None
    return (work.current.restart_s + work.job.stop_loses_s) * now.rate(work, work.current)


def _wait_s(now: Pass, work: Work, option: Option) -> float:
    """Until the option fits if others only end: jobs that start now hold their devices to their ends too."""
    ending = [other for other in now.running if other.job.id not in now.grants]
    given: list[Work] = []
    wait_s = FAR_S
    for other in sorted(ending, key=lambda other: (other.left_s, other.job.id)):
        now.effort -= 1
        now.rooms.give(other.job.placement, other.job)
        given.append(other)
        if now.rooms.find(option, work.job):
            wait_s = other.left_s
            break
    for other in given:
        now.rooms.take(other.job.placement, other.job)
    return wait_s
