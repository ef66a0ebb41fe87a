"""Policies by name, open to other distributions through the entry point group `jctd.policies`."""

from importlib.metadata import entry_points

from policies.jct.policy import Policy
from policies.jct.priority import PriorityPolicy

GROUP = "jctd.policies"


def names() -> tuple[str, ...]:
    """All policies that can be chosen."""
    return tuple(sorted({"priority", *(point.name for point in entry_points(group=GROUP))}))


def find(name: str) -> Policy:
    """A policy by its name. An entry point names a callable without arguments that returns a Policy.

    Raises:
        ValueError: no such policy.
    """
    if name == "priority":
        return PriorityPolicy()
    for point in entry_points(group=GROUP):
        if point.name == name:
            policy: Policy = point.load()()
            return policy
    raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(names())}")
