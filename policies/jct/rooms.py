"""Free devices by node, and where on them an option fits best."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from policies.jct.problem import NOTHING, JobDemand, NodeRoom, Option, Placement, Problem


class Rooms:
    """Changed by `take` and `give`. `find` prefers the fullest nodes that have room, so that whole nodes stay whole; a
    gang on several nodes is kept below one switch where that can be, and off nodes that are slowed down.

    left: devices that the jobs of each capped holder may still have.
    """

    def __init__(self, nodes: Iterable[NodeRoom], caps: Mapping[str, int] | None = None) -> None:
        self.nodes = tuple(nodes)
        self.left = dict(caps or {})
        self.index = {node.id: number for number, node in enumerate(self.nodes)}
        self.kinds = {node.id: node.kind for node in self.nodes}
        self.total: dict[str, int] = {}
        self.free_of: dict[str, int] = {}
        self._free = [node.free for node in self.nodes]
        self._by_free: dict[str, dict[int, dict[int, None]]] = {}
        self._slow = frozenset(number for number, node in enumerate(self.nodes) if node.slowdown > 1.0)
        self._switches: dict[str, frozenset[int]] = {}
        for number, node in enumerate(self.nodes):
            self.total[node.kind] = self.total.get(node.kind, 0) + node.devices
            self.free_of[node.kind] = self.free_of.get(node.kind, 0) + node.free
            self._by_free.setdefault(node.kind, {}).setdefault(node.free, {})[number] = None
            if node.switch:
                self._switches[node.switch] = self._switches.get(node.switch, frozenset()) | {number}

    @classmethod
    def of(cls, problem: Problem) -> "Rooms":
        """As things stand before a decision."""
        rooms = cls(problem.nodes, problem.caps)
        for job in problem.jobs:
            rooms._count(job, -job.devices)
        return rooms

    def free(self, node: str) -> int:
        return self._free[self.index[node]]

    def slowdown(self, placement: Placement, given: Placement = NOTHING) -> float:
        """How many times as long a step would take there: a gang is as slow as the slowest device that it gets, and
        the calmest are gone first. given: what the job gives up for it, already given."""
        if not self._slow:
            return 1.0
        return max((self._slowed(self.index[node], count, given.get(node, 0)) for node, count in placement.items()),
                   default=1.0)  # fmt: skip

    def _slowed(self, number: int, devices: int, given: int) -> float:
        node = self.nodes[number]
        return node.slowed(devices, taken=max(0, node.free - (self._free[number] - given)))

    def calmest(self, kinds: Iterable[str]) -> float:
        """The least slowdown of any node of these kinds, whether there is room or not."""
        if not self._slow:
            return 1.0
        wanted = set(kinds)
        return min((node.slowdown for node in self.nodes if node.kind in wanted), default=1.0)

    def take(self, placement: Placement, job: JobDemand | None = None) -> None:
        """Without a job, nobody's caps are touched."""
        for node, count in placement.items():
            self._set(self.index[node], -count)
        self._count(job, -sum(placement.values()))

    def give(self, placement: Placement, job: JobDemand | None = None) -> None:
        for node, count in placement.items():
            if node in self.index:
                self._set(self.index[node], count)
        self._count(job, sum(placement.values()))

    def allows(self, job: JobDemand | None, devices: int) -> bool:
        """Whether the caps of its holders let a job have so many more."""
        return job is None or all(self.left.get(holder, devices) >= devices for holder in job.holders)

    def _count(self, job: JobDemand | None, change: int) -> None:
        for holder in job.holders if job is not None else ():
            if holder in self.left:
                self.left[holder] += change

    def _set(self, number: int, change: int) -> None:
        kind, old = self.nodes[number].kind, self._free[number]
        buckets = self._by_free[kind]
        del buckets[old][number]
        self._free[number] = old + change
        self.free_of[kind] += change
        buckets.setdefault(old + change, {})[number] = None

    def find(self, option: Option, job: JobDemand | None = None) -> Placement:
        """Where the option fits now, within the job's caps and off the nodes it avoids; empty where it does not."""
        if option.devices > self.free_of.get(option.kind, 0) or not self.allows(job, option.devices):
            return NOTHING
        avoid = job.avoid if job is not None else ()
        barred = frozenset(self.index[node] for node in avoid if node in self.index)
        if self._slow and (found := self._near(option, barred | self._slow)):
            return found
        return self._near(option, barred)

    def _near(self, option: Option, barred: frozenset[int]) -> Placement:
        """On one node, else below one switch, else anywhere; where it is spread over nodes in any case."""
        found = self._fit(option, barred)
        if len(found) < 2 or not self._switches:
            return self._named(found)
        all_nodes = frozenset(range(len(self.nodes)))
        below = [found]
        for nodes in self._switches.values():
            if (near := self._fit(option, barred | (all_nodes - nodes))):
                below.append(near)
        return self._named(min(below, key=lambda chosen: (self._crossed(chosen), self._left_on(chosen))))

    def _crossed(self, chosen: Mapping[int, int]) -> int:
        """Switches that a gang is spread over; a node without a label hangs on one of its own."""
        return len({self.nodes[number].switch or self.nodes[number].id for number in chosen})

    def _left_on(self, chosen: Mapping[int, int]) -> int:
        return sum(self._free[number] - count for number, count in chosen.items())

    def _fit(self, option: Option, barred: frozenset[int]) -> dict[int, int]:
        shape = option.per_node
        if not shape:
            return self._anywhere(option.kind, option.devices, barred)
        if len(set(shape)) == 1:
            return self._alike(option.kind, shape[0], len(shape), barred)
        return self._in_order(option.kind, shape, barred)

    def _named(self, chosen: Mapping[int, int]) -> Placement:
        return {self.nodes[number].id: chosen[number] for number in sorted(chosen)}

    def _alike(self, kind: str, each: int, count: int, barred: frozenset[int]) -> dict[int, int]:
        buckets = self._by_free[kind]
        chosen: dict[int, int] = {}
        for free in sorted(size for size in buckets if size >= each):
            for number in buckets[free]:
                if number not in barred:
                    chosen[number] = each
                    if len(chosen) == count:
                        return chosen
        return {}

    def _anywhere(self, kind: str, count: int, barred: frozenset[int]) -> dict[int, int]:
        """One node with just enough room; else the emptiest nodes, the last of them again with just enough."""
        buckets = self._by_free[kind]
        chosen: dict[int, int] = {}
        left = count
        while left > 0:
            sizes = sorted(free for free, nodes in buckets.items() if free and any(
                n not in barred and n not in chosen for n in nodes))  # fmt: skip
            if not sizes:
                return {}
            free = next((size for size in sizes if size >= left), sizes[-1])
            number = next(n for n in buckets[free] if n not in barred and n not in chosen)
            chosen[number] = min(left, free)
            left -= chosen[number]
        return chosen

    def _in_order(self, kind: str, shape: tuple[int, ...], barred: frozenset[int]) -> dict[int, int]:
        """The arrangement that leaves least behind on the nodes it uses."""
        numbers = [n for n, node in enumerate(self.nodes) if node.kind == kind and self._free[n] and n not in barred]
        best: tuple[int, dict[int, int]] | None = None
        for arrangement in arrangements(shape):
            chosen: dict[int, int] = {}
            wanted = iter(arrangement)
            need = next(wanted)
            for number in numbers:
                if self._free[number] >= need:
                    chosen[number] = need
                    if len(chosen) == len(shape):
                        break
                    need = next(wanted)
            if len(chosen) == len(shape) and (best is None or self._left_on(chosen) < best[0]):
                best = (self._left_on(chosen), chosen)
        return best[1] if best is not None else {}

    def soonest(self, option: Option, job: JobDemand, free_in_s: Mapping[str, float]) -> list[str]:
        """The nodes that a job which waits for this option will get: those that are free soonest."""
        chosen: list[str] = []
        needs = sorted(option.per_node, reverse=True) or [1] * option.devices
        fit = [node for node in self.nodes if node.kind == option.kind and node.id not in job.avoid]
        for node in sorted(fit, key=lambda node: (free_in_s.get(node.id, 0.0), node.id)):
            if needs and node.devices >= needs[0]:
                chosen.append(node.id)
                del needs[: 1 if option.per_node else node.devices]
        return chosen


@lru_cache(maxsize=4096)
def arrangements(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All rotations of a shape and of its reverse, each once."""
    found: dict[tuple[int, ...], None] = {}
    for way in (shape, shape[::-1]):
        for start in range(len(way)):
            found[way[start:] + way[:start]] = None
    return tuple(found)
