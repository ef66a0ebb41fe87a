"""Whom to set aside so that an option fits: the nodes that are cheapest to clear, and there the fewest jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.jct.problem import JobDemand, Option
from policies.jct.rooms import Rooms
from policies.jct.work import Work


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

    def victims(self, option: Option, job: JobDemand) -> list[Work]:
        """The jobs to set aside for a job; empty where no such set makes room. A gang that fits no node is given
        several. Where a cap is in the way only those count that it counts too."""
        if not self.rooms.allows(job, option.devices):
            own = set(job.holders)
            on_node = {node: [w for w in there if own & set(w.job.holders)] for node, there in self.on_node.items()}
            capped = replace(self, on_node=on_node)
            found = capped._find(option, job.avoid)
            self.visits = capped.visits
            return found
        return self._find(option, job.avoid)

    def _find(self, option: Option, avoid: Sequence[str]) -> list[Work]:
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
                    if cost <= self.enough:
                        break
            if best is None:
                return []
            used.add(best[1])
            victims.update((victim.job.id, victim) for victim in best[2])
        return list(victims.values())

    def _for_any_spread(self, option: Option, avoid: Sequence[str]) -> list[Work]:
        """Node after node, that first which costs least a device, until all devices are there."""
        nodes = [node.id for node in self.rooms.nodes if node.kind == option.kind and node.id not in avoid]
        most = {node: min(option.devices, self._most(node, {})) for node in nodes}
        if sum(most.values()) < option.devices:
            return []
        price = {node: self._clear(node, count, {})[1] / count for node, count in most.items() if count}
        victims: dict[str, Work] = {}
        left = option.devices
        for node in sorted(price, key=lambda node: (price[node], -most[node])):
            need = min(left, self._most(node, victims))
            chosen, _ = self._clear(node, need, victims)
            if chosen is not None:
                victims.update((victim.job.id, victim) for victim in chosen)
                left -= need
            if left == 0:
                return list(victims.values())
        return []

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
