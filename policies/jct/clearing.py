"""Whom to set aside so that an option fits: the nodes that are cheapest to clear, and there the fewest jobs."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policies.jct.problem import JobDemand, Option
from policies.jct.rooms import Rooms
from policies.jct.work import Work

Given = Mapping[str, int]
"""What those set aside already give up, by node."""


@dataclass(slots=True)
class Clearing:
    """on_node: who is on each node. may: whether a job may be set aside. cost: of doing so. first: which of those that
    free as much on a node goes first. enough: a node that costs no more will do. visits: nodes looked at so far.
    """

    rooms: Rooms
    on_node: Mapping[str, Sequence[Work]]
    may: Callable[[Work], bool]
    cost: Callable[[Work], float]
    first: Callable[[Work], tuple[float, ...]]
    enough: float = 0.0
    visits: int = 0
    _kin: dict[tuple[str, ...], Mapping[str, Sequence[Work]]] = field(default_factory=dict)

    def victims(self, option: Option, job: JobDemand) -> list[Work]:
        """The jobs to set aside for a job; empty where no such set makes room. A gang that fits no node is given
        several. Where a cap is in the way only those count that it counts too."""
        there = self.on_node if self.rooms.allows(job, option.devices) else self._kin_of(job)
        shape = sorted(option.per_node or (option.devices,), reverse=True)
        avoid = frozenset(job.avoid)
        found = self._for_shape(option.kind, shape, avoid, there)
        return found if found or option.per_node else self._for_any_spread(option, avoid, there)

    def _kin_of(self, job: JobDemand) -> Mapping[str, Sequence[Work]]:
        """Who is on each node of those that count under the same caps."""
        if job.holders not in self._kin:
            own = set(job.holders)
            kin = {node: [w for w in works if own & set(w.job.holders)] for node, works in self.on_node.items()}
            self._kin[job.holders] = {node: works for node, works in kin.items() if works}
        return self._kin[job.holders]

    def _for_shape(
        self, kind: str, shape: Sequence[int], avoid: Collection[str], on_node: Mapping[str, Sequence[Work]]
    ) -> list[Work]:
        victims: dict[str, Work] = {}
        given: Counter[str] = Counter()
        used: set[str] = set()
        for need in shape:
            best: tuple[float, str, list[Work]] | None = None
            for node in self.rooms.nodes:
                if node.kind != kind or node.devices < need or node.id in used or node.id in avoid:
                    continue
                chosen, cost = self._clear(node.id, need, on_node.get(node.id, ()), victims, given)
                if chosen is not None and (best is None or cost < best[0]):
                    best = (cost, node.id, chosen)
                    if cost <= self.enough:
                        break
            if best is None:
                return []
            used.add(best[1])
            _set_aside(best[2], victims, given)
        return list(victims.values())

    def _for_any_spread(
        self, option: Option, avoid: Collection[str], on_node: Mapping[str, Sequence[Work]]
    ) -> list[Work]:
        """Node after node, that first which costs least a device, until all devices are there."""
        nodes = [node.id for node in self.rooms.nodes if node.kind == option.kind and node.id not in avoid]
        victims: dict[str, Work] = {}
        given: Counter[str] = Counter()

        def most(node: str) -> int:
            there = self._there(works, victims) if (works := on_node.get(node)) else ()
            return self._free(node, given) + sum(work.job.placement[node] for work in there)

        limits = {node: min(option.devices, most(node)) for node in nodes}
        if sum(limits.values()) < option.devices:
            return []
        price = {
            node: self._clear(node, count, on_node.get(node, ()), {}, {})[1] / count
            for node, count in limits.items() if count
        }  # fmt: skip
        left = option.devices
        for node in sorted(price, key=lambda node: (price[node], -limits[node])):
            need = min(left, most(node))
            chosen, _ = self._clear(node, need, on_node.get(node, ()), victims, given)
            if chosen is not None:
                _set_aside(chosen, victims, given)
                left -= need
            if left == 0:
                return list(victims.values())
        return []

    def _free(self, node: str, given: Given) -> int:
        return self.rooms.free(node) + given.get(node, 0)

    def _there(self, works: Sequence[Work], already: Mapping[str, Work]) -> list[Work]:
        return [work for work in works if work.job.id not in already and self.may(work)]

    def _clear(
        self, node: str, need: int, works: Sequence[Work], already: Mapping[str, Work], given: Given
    ) -> tuple[list[Work] | None, float]:
        """Whom of those on one node to set aside so that `need` devices are free there, and what that costs."""
        self.visits += 1
        free = self._free(node, given)
        if free >= need or not works:
            return ([], 0.0) if free >= need else (None, 0.0)
        chosen: list[Work] = []
        cost = 0.0
        there = self._there(works, already)
        for work in sorted(there, key=lambda work: (-work.job.placement[node], *self.first(work), work.job.id)):
            chosen.append(work)
            cost += self.cost(work)
            free += work.job.placement[node]
            if free >= need:
                return chosen, cost
        return None, 0.0


def _set_aside(works: Iterable[Work], victims: dict[str, Work], given: Counter[str]) -> None:
    for work in works:
        victims[work.job.id] = work
        given.update(work.job.placement)


def by_node(works: Sequence[Work]) -> dict[str, list[Work]]:
    """Running jobs by the nodes they are on."""
    found: dict[str, list[Work]] = {}
    for work in works:
        for node in work.job.placement:
            found.setdefault(node, []).append(work)
    return found
