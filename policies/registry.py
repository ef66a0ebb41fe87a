"""Policies by name, open to other distributions through the entry point group `jctd.policies`."""

from collections.abc import Callable
from importlib.metadata import entry_points

from policies.jct.allocating import AllocatingPolicy
from policies.jct.goodput import Goodput
from policies.jct.joint import Joint
from policies.jct.levels import Levels
from policies.jct.ordered import Fifo, Las, Srtf
from policies.jct.policy import Policy
from policies.jct.priority import PriorityPolicy
from policies.jct.problem import Allocator
from policies.jct.queues import Queues
from policies.jct.ranges import InRange
from policies.jct.slope import Slope

GROUP = "jctd.policies"

ALLOCATORS: dict[str, Callable[[], Allocator]] = {
    "jct": Joint, "fifo": Fifo, "srtf": Srtf, "las": Las, "goodput": Goodput, "slope": Slope,
}  # fmt: skip
"""Those that decide on a plain problem, and so can serve other clusters and simulators."""


def names() -> tuple[str, ...]:
    """All policies that can be chosen."""
    return tuple(sorted({"priority", *ALLOCATORS, *(point.name for point in entry_points(group=GROUP))}))


def find(name: str) -> Policy:
    """A policy by its name. An entry point names a callable without arguments that returns a Policy. Whichever it is,
    running jobs come back into the range that their owners have given them before it is asked.

    Raises:
        ValueError: no such policy.
    """
    return InRange(_find(name))


def _find(name: str) -> Policy:
    if name == "priority":
        return PriorityPolicy()
    if name in ALLOCATORS:
        return AllocatingPolicy(find_allocator(name))
    for point in entry_points(group=GROUP):
        if point.name == name:
            policy: Policy = point.load()()
            return policy
    raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(names())}")


def queue_policies() -> tuple[str, ...]:
    """Those that a queue may have of its own: they decide among its jobs within what the cluster's policy gives it."""
    return tuple(sorted(ALLOCATORS))


def find_allocator(name: str) -> Allocator:
    """An allocator by its name, with queues' own policies and strict priorities around it. Raises ValueError."""
    if name not in ALLOCATORS:
        raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(sorted(ALLOCATORS))}")
    return Levels(Queues(ALLOCATORS[name](), lambda other: ALLOCATORS[other]()))
