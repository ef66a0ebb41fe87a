"""What disturbs a job now, and what the job is like undisturbed: all that a plan is priced under."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.cost import LayerCosts
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link

Pair = tuple[int, int]
"""Two ranks that exchange messages, the lower one first."""


@dataclass(frozen=True)
class Situation:
    """slow: factor on each rank's computing, 1 where it is as it should be. links: factor on the transfer time between
    two ranks, absent where it is 1. load_s: what fetching the inputs of a micro-batch takes the first stage."""

    slow: tuple[float, ...]
    links: Mapping[Pair, float] = field(default_factory=dict)
    load_s: float = 0.0

    @property
    def calm(self) -> bool:
        """Nothing disturbs."""
        return all(factor == 1 for factor in (*self.slow, *self.links.values()))

    def distance(self, other: "Situation") -> float:
        """By how much the one is slower or faster than the other where they differ most: 0.5 for half as slow again.

        A rank or link that one of them does not know counts as undisturbed.
        """
        pairs = [(a, b) for a, b in zip(self.slow, other.slow, strict=True)]
        known = {*self.links, *other.links}
        pairs += [(self.links.get(pair, 1.0), other.links.get(pair, 1.0)) for pair in known]
        return max((max(a / b, b / a) - 1 for a, b in pairs), default=0.0)

    def rounded(self, threshold: float) -> "Situation":
        """What is within a share of 1 on either side is noise, and taken out."""

        def is_noise(factor: float) -> bool:
            return max(factor, 1 / factor) <= 1 + threshold

        slow = tuple(1.0 if is_noise(factor) else factor for factor in self.slow)
        return Situation(slow, {pair: f for pair, f in self.links.items() if not is_noise(f)}, self.load_s)


@dataclass(frozen=True)
class Ground:
    """A job undisturbed. costs: at its micro-batch size. links: those that were measured; others are the kind's."""

    costs: LayerCosts
    kind: DeviceKind
    links: Mapping[Pair, Link] = field(default_factory=dict)

    def transfer_s(self, pair: Pair, size_bytes: float, situation: Situation) -> float:
        """One way, between two ranks, as things are."""
        return self.links.get(pair, self.kind.link).transfer_s(size_bytes) * situation.links.get(pair, 1.0)


def pair_of(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def neighbours(plan: ParallelPlan) -> list[tuple[int, Pair]]:
    """The boundary in front of each stage but the first, with every pair of ranks that may cross it."""
    return [
        (boundary, pair_of(a, b))
        for boundary, (before, after) in enumerate(zip(plan.stages, plan.stages[1:], strict=False))
        for a, b in _crossings(before.ranks, after.ranks, before.shares == after.shares)
        if a != b
    ]


def _crossings(before: tuple[int, ...], after: tuple[int, ...], piped: bool) -> list[tuple[int, int]]:
    """With equal shares replica j sends to replica j; else each may send to each."""
    if piped:
        return list(zip(before, after, strict=True))
    return [(a, b) for a in before for b in after]
