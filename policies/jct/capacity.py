"""What a job could run on if nobody else were there: no policy waits for an option that the cluster has no room for."""

from collections import Counter
from collections.abc import Hashable, Iterable
from functools import lru_cache

from policies.jct.problem import Option, Options

Sizes = tuple[tuple[str, int, int], ...]
"""(kind, devices of a node, how many such nodes)."""


def sizes_of(nodes: Iterable[tuple[str, int]]) -> Sizes:
    """nodes: kind and devices of each that a job may use."""
    return tuple(sorted((kind, devices, count) for (kind, devices), count in Counter(nodes).items()))


def possible(menu: Options, sizes: Sizes, plan: Hashable = None, held: int = 0) -> Options:
    """The options that nodes of these sizes have room for while they are empty, and what the job runs: this plan on so
    many devices. The menu itself where that is all."""
    found = _fitting(menu, sizes)
    if not held or found is menu:
        return found
    own = [option for option in menu if option.plan == plan and option.devices == held and option not in found]
    return Options([*found, *own]) if own else found


@lru_cache(maxsize=16384)
def _fitting(menu: Options, sizes: Sizes) -> Options:
    found = Options(option for option in menu if _fits(option, sizes))
    return found if len(found) < len(menu) else menu


def _fits(option: Option, sizes: Sizes) -> bool:
    there = [(devices, count) for kind, devices, count in sizes if kind == option.kind]
    if not option.per_node:
        return option.devices <= sum(devices * count for devices, count in there)
    wanted = sorted(option.per_node, reverse=True)
    return all(
        sum(count for devices, count in there if devices >= need) > larger for larger, need in enumerate(wanted)
    )
