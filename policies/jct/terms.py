"""What a job's place in the queue is made of, as its policy says it: `jct prio`.

Terms of one rank are added up; of two jobs the one with the larger sum comes first, and the next rank decides between
equals.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """rank: 0 decides first."""

    name: str
    value: float
    rank: int = 1


def sums(terms: Iterable[Term]) -> tuple[float, ...]:
    """By rank, first the one that decides first: larger tuples come first in the queue."""
    found: dict[int, float] = {}
    for term in terms:
        found[term.rank] = found.get(term.rank, 0.0) + term.value
    return tuple(found[rank] for rank in sorted(found))
