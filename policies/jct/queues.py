"""Queues with a policy of their own, inside what the cluster's policy gives them.

1. The cluster's policy decides for all jobs. What a queue's jobs then hold together, node by node, is the queue's room.
2. The queue's own policy decides which of its jobs have it.
3. What it cannot use goes to those whom the cluster's policy had chosen, as far as it still fits.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.jct.problem import NOTHING, Allocator, Grant, JobDemand, Option, Placement, Problem
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work


class Queues:
    """find: an allocator by the name of a queue's policy."""

    def __init__(self, allocator: Allocator, find: Callable[[str], Allocator]) -> None:
        self._allocator, self._find = allocator, find

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        grants = {grant.id: grant for grant in self._allocator.allocate(problem, effort)}
        for queue, policy in problem.policies.items():
            jobs = [job for job in problem.jobs if job.queue == queue and not job.fixed]
            if jobs and any(job.placement or job.id in grants for job in jobs):
                grants |= _Queue(problem, jobs, grants).decide(self._find(policy), effort)
        jobs_by_id = {job.id: job for job in problem.jobs}
        return tuple(grant for grant in grants.values() if _changes(jobs_by_id[grant.id], grant))

    def settles_in_s(self, problem: Problem) -> float:
        """Of the cluster's policy and of the queues' own."""
        asked = [self._allocator, *(self._find(policy) for policy in problem.policies.values())]
        return min(allocator.settles_in_s(problem) for allocator in asked)

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        return self._allocator.claims(problem, waiting)

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        """Of the cluster's policy, which decides what the queue gets."""
        return self._allocator.terms(work, among)


def _changes(job: JobDemand, grant: Grant) -> bool:
    return grant.calmer or grant.placement != job.placement or (bool(grant.placement) and grant.plan != job.plan)


@dataclass(slots=True)
class _Queue:
    """One queue's part of a decision. grants: those of the cluster's policy for all jobs."""

    problem: Problem
    jobs: Sequence[JobDemand]
    grants: Mapping[str, Grant]

    def decide(self, allocator: Allocator, effort: int) -> dict[str, Grant]:
        """Of every job of the queue what it has from now on; where nothing changes too."""
        room = Counter[str]()
        for job in self.jobs:
            room.update(self._given(job))
        nodes = (replace(node, devices=n, free=n) for node in self.problem.nodes if (n := room[node.id]))
        rooms, caps = Rooms(nodes, self._caps()), self._caps()
        kept = self._kept(rooms)
        there = tuple(replace(node, free=rooms.free(node.id)) for node in rooms.nodes)
        question = Problem(self.problem.now_s, there, tuple(kept[job.id] for job in self.jobs), caps=caps)
        found = {grant.id: grant for grant in allocator.allocate(question, effort)}
        after = {id: found.get(id) or Grant(id, job.placement, job.plan) for id, job in kept.items()}
        for id in found:
            rooms.give(kept[id].placement, kept[id])
        for id, grant in found.items():
            rooms.take(grant.placement, kept[id])
        return after | self._left_over(after, rooms)

    def _given(self, job: JobDemand) -> Placement:
        grant = self.grants.get(job.id)
        return job.placement if grant is None else grant.placement

    def _caps(self) -> dict[str, int]:
        """What others leave of them."""
        own, caps = {job.id for job in self.jobs}, dict(self.problem.caps)
        for job in self.problem.jobs:
            for holder in job.holders if job.id not in own else ():
                if holder in caps:
                    caps[holder] -= sum(self._given(job).values())
        return caps

    def _kept(self, rooms: Rooms) -> dict[str, JobDemand]:
        """The jobs with what they have now, taken from the room, those first that the cluster's policy leaves alone;
        without, where it has given that away."""
        kept: dict[str, JobDemand] = {}
        for job in sorted(self.jobs, key=lambda job: self._given(job) != job.placement):
            stays = bool(job.placement) and (self._given(job) == job.placement or _fits(job, job.placement, rooms))
            kept[job.id] = job if stays else replace(job, placement=NOTHING, plan=None)
            rooms.take(kept[job.id].placement, job)
        return kept

    def _left_over(self, after: Mapping[str, Grant], rooms: Rooms) -> dict[str, Grant]:
        """For jobs that the queue's policy leaves with nothing. rooms: what is free once it is carried out."""
        found: dict[str, Grant] = {}
        for job in self.jobs:
            placement = self._given(job)
            if placement and not after[job.id].placement and _fits(job, placement, rooms):
                found[job.id] = self.grants.get(job.id) or Grant(job.id, job.placement, job.plan)
                rooms.take(placement, job)
        return found


def _fits(job: JobDemand, placement: Placement, rooms: Rooms) -> bool:
    free = all(node in rooms.index and rooms.free(node) >= count for node, count in placement.items())
    return free and rooms.allows(job, sum(placement.values()))
