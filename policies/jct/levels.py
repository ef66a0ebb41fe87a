"""Strict priorities around any allocator, so that no job waits for one of lower priority that may be stopped.

1. Levels are decided from the highest down, each by the allocator, on what those above leave free.
2. A waiting job that finds no room takes it from running jobs of strictly lower levels that may be stopped: the lowest,
   then the fewest, then the youngest go. At their own level's turn they are placed anew, smaller or elsewhere, or wait.
3. If the highest job that waits cannot have that either, the free devices of the nodes that will be its own are kept
   from lower levels, but for jobs that end before it can start; what a job on its probe will want is kept too. So
   growth below never holds a job back.
4. A job that has waited for longer than its bound counts as one of the highest level that is there.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from policies.jct.clearing import Clearing, by_node
from policies.jct.patience import PATIENCE, Patience, starves
from policies.jct.problem import NOTHING, Allocator, Grant, JobDemand, Option, Options, Placement, Problem
from policies.jct.rooms import Rooms
from policies.jct.terms import Term
from policies.jct.work import Work, look_at, wanted

WAYS = 4
"""Options tried for a job that takes from lower levels, best first."""


class Levels:
    """An allocator that asks another, level by level. Where there is one level only, it just asks."""

    def __init__(self, allocator: Allocator, patience: Patience = PATIENCE) -> None:
        self._allocator = allocator
        self._patience = patience

    def allocate(self, problem: Problem, effort: int) -> tuple[Grant, ...]:
        if len({job.level for job in problem.jobs}) < 2:
            return self._allocator.allocate(problem, effort)
        return _Descent(problem, self._allocator, effort, self._patience).run()

    def settles_in_s(self, problem: Problem) -> float:
        return self._allocator.settles_in_s(problem)

    def claims(self, problem: Problem, waiting: Sequence[Work]) -> list[tuple[Work, Sequence[Option]]]:
        return self._allocator.claims(problem, waiting)

    def terms(self, work: Work, among: Sequence[Work]) -> tuple[Term, ...]:
        """The level decides first; who has waited for longer than its bound is before them all."""
        starved = not work.job.placement and work.options and starves(self._patience, work)
        first = (Term("has waited beyond its bound", 1.0, -1),) if starved else (Term("within its bound", 0.0, -1),)
        peers = [other for other in among if other.job.level == work.job.level]
        own = self._allocator.terms(work, peers)
        return (*first, Term("priority", float(work.job.level), 0), *own)


@dataclass(slots=True)
class _Descent:
    """One pass. jobs: as they stand at this point of it; works: as they stood before it, with what is left of them.
    weight: of all jobs; wanted: devices that all hold, or want at least. kept: free devices that are kept for a waiting
    job of a level above, for wait_s seconds."""

    problem: Problem
    allocator: Allocator
    effort: int
    patience: Patience
    rooms: Rooms = field(init=False)
    jobs: dict[str, JobDemand] = field(init=False)
    works: dict[str, Work] = field(init=False)
    weight: float = field(init=False)
    wanted: int = field(init=False)
    grants: dict[str, Grant] = field(default_factory=dict)
    kept: Placement = field(default_factory=lambda: NOTHING)
    wait_s: float = 0.0

    def __post_init__(self) -> None:
        self.rooms = Rooms.of(self.problem)
        self.jobs = {job.id: job for job in self.problem.jobs}
        self.works = {job.id: look_at(job, self.rooms.kinds) for job in self.problem.jobs}
        self.weight = self.problem.others_weight + sum(job.weight for job in self.problem.jobs)
        self.wanted = self.problem.others_devices + sum(map(wanted, self.works.values()))

    def run(self) -> tuple[Grant, ...]:
        levels: dict[int, list[str]] = {}
        top = max(job.level for job in self.problem.jobs)
        for job in self.problem.jobs:
            waits = job.waits and self.works[job.id].options
            level = top if waits and starves(self.patience, self.works[job.id]) else job.level
            levels.setdefault(level, []).append(job.id)
        self.effort //= len(levels)
        for level in sorted(levels, reverse=True):
            self._decide(level, levels[level])
        return tuple(grant for id, grant in self.grants.items() if self._changes(id, grant))

    def _changes(self, id: str, grant: Grant) -> bool:
        return bool(grant.placement or self.works[id].job.placement)

    def _decide(self, level: int, ids: Sequence[str]) -> None:
        self._ask([self.jobs[id] for id in ids])
        blocked = self._waiting(ids)
        if blocked:
            self._take_from_lower(level, self.allocator.claims(self._question(ids), blocked))
        self._keep_for_probed(ids)
        blocked = self._waiting(ids)
        if self.kept:
            self._ask([job for work in blocked if (job := self._brief(work)) is not None], self.kept)
        elif blocked:
            self._keep_for(*self.allocator.claims(self._question(ids), blocked)[0])

    def _ask(self, jobs: Sequence[JobDemand], more: Placement = NOTHING) -> None:
        """more: devices that these jobs may use besides what is free."""
        if not jobs:
            return
        self.rooms.give(more)
        for grant in self.allocator.allocate(self._question([job.id for job in jobs], jobs), self.effort):
            self._grant(grant)
        left = {node: count for node, kept in more.items() if (count := min(kept, self.rooms.free(node)))}
        self.rooms.take(left)
        self.kept = left if more else self.kept

    def _question(self, ids: Iterable[str], jobs: Sequence[JobDemand] | None = None) -> Problem:
        """About some jobs; the others are known by what they want in all."""
        asked = tuple(ids)
        nodes = tuple(node.with_free(self.rooms.free(node.id)) for node in self.problem.nodes)
        own = tuple(self.jobs[id] for id in asked) if jobs is None else tuple(jobs)
        caps = dict(self.rooms.left)
        for holder, devices in ((holder, job.devices) for job in own for holder in job.holders if holder in caps):
            caps[holder] += devices
        return Problem(
            self.problem.now_s, nodes, own, caps=caps, policies=self.problem.policies,
            others_weight=self.weight - sum(self.works[id].job.weight for id in asked),
            others_devices=self.wanted - sum(wanted(self.works[id]) for id in asked),
        )  # fmt: skip

    def _waiting(self, ids: Iterable[str]) -> list[Work]:
        return [
            look_at(self.jobs[id], self.rooms.kinds)
            for id in ids
            if self.jobs[id].waits and self.works[id].options
        ]

    def _grant(self, grant: Grant) -> None:
        job = self.jobs[grant.id]
        self.rooms.give(job.placement, job)
        self.rooms.take(grant.placement, job)
        self.jobs[grant.id] = replace(job, placement=grant.placement, plan=grant.plan)
        self.grants[grant.id] = grant

    # --- room from lower levels -----------------------------------------------------------------------------

    def _take_from_lower(self, level: int, claims: Iterable[tuple[Work, Sequence[Option]]]) -> None:
        """Only devices that lower jobs hold from before this pass; what they have been granted in it comes later."""
        lower = [other for id, other in self.works.items() if self._may_lose(id, other, level)]
        lowest = min((other.job.level for other in lower), default=level)
        clearing = Clearing(
            self.rooms, by_node(lower), may=lambda other: other.job.id not in self.grants,
            cost=lambda other: 2.0 ** (other.job.level - level) * (1.0 + 1e-3 * other.job.devices),
            first=lambda other: (other.job.level, other.job.age_s), enough=1.5 * 2.0 ** (lowest - level),
        )  # fmt: skip
        hopeless: set[tuple[Hashable, ...]] = set()
        failed: set[tuple[Hashable, ...]] = set()
        for work, options in claims if lower else ():
            for option in options[:WAYS]:
                within_caps = self.rooms.allows(work.job, option.devices)
                want = option.kind, option.devices, option.per_node, work.job.avoid, work.job.holders, within_caps
                if want in hopeless or want in failed:
                    continue
                victims = clearing.victims(option, work.job)
                if victims and self._swap(work, option, victims):
                    failed.clear()
                    break
                (failed if victims else hopeless).add(want)  # the more is taken, the less is left to take

    def _swap(self, work: Work, option: Option, victims: Sequence[Work]) -> bool:
        """The job gets its option, its victims lose their places; those with a shield get another one at once, or all
        is as it was."""
        before, seeker = (dict(self.jobs), dict(self.grants)), work.job
        if not self.rooms.allows(work.job, option.devices):  # a device counts once: it takes over what its kin give up
            given_up = {node for victim in victims for node in victim.job.placement}
            others = tuple(node.id for node in self.rooms.nodes if node.id not in given_up)
            seeker = replace(work.job, avoid=(*work.job.avoid, *others))
        for victim in victims:
            self._grant(Grant(victim.job.id, NOTHING))
        if placement := self.rooms.find(option, seeker):
            self._grant(Grant(work.job.id, placement, option.plan, option.step_time_s))
            if all(self._place_shielded(victim) for victim in victims if victim.job.shield):
                return True
        for victim in victims:
            self._grant(Grant(victim.job.id, NOTHING))
        if placement:
            self._grant(Grant(work.job.id, NOTHING))
        for victim in victims:
            self.rooms.take(victim.job.placement, victim.job)
        self.jobs, self.grants = before
        return False

    def _place_shielded(self, victim: Work) -> bool:
        for option in sorted(victim.options, key=lambda option: option.step_time_s):
            if placement := self.rooms.find(option, victim.job):
                self._grant(Grant(victim.job.id, placement, option.plan, option.step_time_s))
                return True
        return False

    def _may_lose(self, id: str, other: Work, level: int) -> bool:
        job = other.job
        able = not job.frozen and bool(job.placement) and id not in self.grants
        return able and job.level < level and job.devices > job.shield

    # --- devices kept for a job that waits -------------------------------------------------------------------

    def _keep_for(self, work: Work, options: Sequence[Option]) -> None:
        """The nodes that will be its own are those where the last job ends soonest."""
        if not options:
            return
        free_in_s = {node.id: 0.0 for node in self.rooms.nodes}
        for id, other in self.works.items():
            ends_s = other.left_s if other.current is not None and id not in self.grants else float("inf")
            for node in self.jobs[id].placement:
                free_in_s[node] = max(free_in_s[node], ends_s)
        nodes = self.rooms.soonest(options[0], work.job, free_in_s)
        self.wait_s = max((free_in_s[node] for node in nodes), default=0.0)
        self.kept = {node: free for node in nodes if (free := self.rooms.free(node))}
        self.rooms.take(self.kept)

    def _keep_for_probed(self, ids: Iterable[str]) -> None:
        """A job on its probe soon starts; nothing of a lower level shall then be in its way."""
        for job in (self.jobs[id] for id in ids):
            if job.expects and job.placement:
                kind, left = self.rooms.kinds[next(iter(job.placement))], job.expects
                for node in sorted(self.rooms.nodes, key=lambda node: -self.rooms.free(node.id)):
                    if node.kind == kind and (count := min(left, self.rooms.free(node.id))):
                        self.rooms.take({node.id: count})
                        left -= count

    def _brief(self, work: Work) -> JobDemand | None:
        """The job with those options only that end before the kept devices are needed."""
        if not work.known:
            return None
        brief = [option for option in work.options if work.takes_s(option) <= self.wait_s]
        return replace(self.jobs[work.job.id], menu=Options(brief)) if brief else None
