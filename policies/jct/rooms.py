"""Free devices by node, and where on them an option fits best."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from policies.jct.problem import NOTHING, NodeRoom, Option, Placement


class Rooms:
    """Changed by `take` and `give`. `find` prefers the fullest nodes that have room, so that whole nodes stay whole."""

    def __init__(self, nodes: Iterable[NodeRoom]) -> None:
        self.nodes = tuple(nodes)
        self.index = {node.id: number for number, node in enumerate(self.nodes)}
        self.kinds = {node.id: node.kind for node in self.nodes}
        self.total: dict[str, int] = {}
        self.free_of: dict[str, int] = {}
        self._free = [node.free for node in self.nodes]
        self._by_free: dict[str, dict[int, dict[int, None]]] = {}
        for number, node in enumerate(self.nodes):
            self.total[node.kind] = self.total.get(node.kind, 0) + node.devices
            self.free_of[node.kind] = self.free_of.get(node.kind, 0) + node.free
            self._by_free.setdefault(node.kind, {}).setdefault(node.free, {})[number] = None

    def free(self, node: str) -> int:
        return self._free[self.index[node]]

    def take(self, placement: Placement) -> None:
        for node, count in placement.items():
            self._set(self.index[node], -count)

    def give(self, placement: Placement) -> None:
        for node, count in placement.items():
            if node in self.index:
                self._set(self.index[node], count)

    def _set(self, number: int, change: int) -> None:
        kind, old = self.nodes[number].kind, self._free[number]
        buckets = self._by_free[kind]
        del buckets[old][number]
        self._free[number] = old + change
        self.free_of[kind] += change
        buckets.setdefault(old + change, {})[number] = None

    def find(self, option: Option, avoid: Sequence[str] = ()) -> Placement:
        """Where the option fits now; empty where it does not."""
        if option.devices > self.free_of.get(option.kind, 0):
            return NOTHING
        barred = {self.index[node] for node in avoid if node in self.index}
        shape = option.per_node
        if not shape:
            return self._named(self._anywhere(option.kind, option.devices, barred))
        if len(set(shape)) == 1:
            return self._named(self._alike(option.kind, shape[0], len(shape), barred))
        return self._named(self._in_order(option.kind, shape, barred))

    def _named(self, chosen: dict[int, int]) -> Placement:
        return {self.nodes[number].id: chosen[number] for number in sorted(chosen)}

    def _alike(self, kind: str, each: int, count: int, barred: set[int]) -> dict[int, int]:
        buckets = self._by_free[kind]
        chosen: dict[int, int] = {}
        for free in sorted(size for size in buckets if size >= each):
            for number in buckets[free]:
                if number not in barred:
                    chosen[number] = each
                    if len(chosen) == count:
                        return chosen
        return {}

    def _anywhere(self, kind: str, count: int, barred: set[int]) -> dict[int, int]:
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

    def _in_order(self, kind: str, shape: tuple[int, ...], barred: set[int]) -> dict[int, int]:
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
            if len(chosen) == len(shape):
                left = sum(self._free[number] - each for number, each in chosen.items())
                if best is None or left < best[0]:
                    best = (left, chosen)
        return best[1] if best is not None else {}


@lru_cache(maxsize=4096)
def arrangements(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All rotations of a shape and of its reverse, each once."""
    found: dict[tuple[int, ...], None] = {}
    for way in (shape, shape[::-1]):
        for start in range(len(way)):
            found[way[start:] + way[:start]] = None
    return tuple(found)
