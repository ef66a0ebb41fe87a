"""Whom to set aside so that an option fits: the nodes that are cheapest to clear, and there the fewest jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.jct.problem import Option
from policies.jct.rooms import Rooms
from policies.jct.work import Work


@dataclass(slots=True)
class Clearing:
    """on_node: who is on each node. may: whether a job may be set aside. cost: of doing so. first: which of those that
    free as much on a node goes first. visits: nodes looked at so far."""

    rooms: Rooms
    on_node: Mapping[str, Sequence[Work]]
    may: Callable[[Work], bool]
    cost: Callable[[Work], float]
    first: Callable[[Work], tuple[float, ...]]
    visits: int = 0

    def victims(self, option: Option, avoid: Sequence[str] = ()) -> list[Work]:
        """The jobs to set aside; empty where no such set makes room. A gang that fits no node is given several."""
        shape = sorted(option.per_node or (option.devices,), reverse=True)
        found = self._for_shape(option.kind, shape, avoid)
        return found if found or option.per_node else self._for_any_spread(option, avoid)

    def _for_shape(self, kind: str, shape: Sequence[int], avoid: Sequence[str]) -> list[Work]:
        victims: dict[str, Work] = {}
        used: set[str] = set()
        for need in shape:
            best: tuple[float, str, list[Work]] | None = None
            for node in self.rooms.nodes:
                if node.kind != kind or node.id in used or node.id in avoid or node.devices < need:
                    continue
                chosen, cost = self._clear(node.id, need, victims)
                if chosen is not None and (best is None or cost < best[0]):
                    best = (cost, node.id, chosen)
            if best is None:
                return []
            used.add(best[1])
            victims.update((victim.job.id, victim) for victim in best[2])
        return list(victims.values())

    def _for_any_spread(self, option: Option, avoid: Sequence[str]) -> list[Work]:
        """Node after node, that first which costs least a device, until all devices are there."""
        victims: dict[str, Work] = {}
        used: set[str] = set()
        left = option.devices
        while left > 0:
            best: tuple[float, int, str, list[Work]] | None = None
            for node in self.rooms.nodes:
                if node.kind != option.kind or node.id in used or node.id in avoid:
                    continue
                need = min(left, self._most(node.id, victims))
                chosen, cost = self._clear(node.id, need, victims) if need else (None, 0.0)
                if chosen is not None and (best is None or (cost / need, -need) < best[:2]):
                    best = (cost / need, -need, node.id, chosen)
            if best is None:
                return []
            left += best[1]
            used.add(best[2])
            victims.update((victim.job.id, victim) for victim in best[3])
        return list(victims.values())

    def _free(self, node: str, already: Mapping[str, Work]) -> int:
        return self.rooms.free(node) + sum(work.job.placement.get(node, 0) for work in already.values())

    def _there(self, node: str, already: Mapping[str, Work]) -> list[Work]:
        return [work for work in self.on_node.get(node, ()) if work.job.id not in already and self.may(work)]

    def _most(self, node: str, already: Mapping[str, Work]) -> int:
        there = self._there(node, already)
        return self._free(node, already) + sum(work.job.placement[node] for work in there)

    def _clear(self, node: str, need: int, already: Mapping[str, Work]) -> tuple[list[Work] | None, float]:
        """Whom to set aside on one node so that `need` devices are free there, and what that costs."""
        self.visits += 1
        free = self._free(node, already)
        chosen: list[Work] = []
        cost = 0.0
        there = self._there(node, already)
        for work in sorted(there, key=lambda work: (-work.job.placement[node], *self.first(work), work.job.id)):
            if free >= need:
                break
            chosen.append(work)
            cost += self.cost(work)
            free += work.job.placement[node]
        return (chosen, cost) if free >= need else (None, 0.0)


def by_node(works: Sequence[Work]) -> dict[str, list[Work]]:
    """Running jobs by the nodes they are on."""
    found: dict[str, list[Work]] = {}
    for work in works:
        for node in work.job.placement:
            found.setdefault(node, []).append(work)
    return found
