"""What every cluster policy is: a pure function from a snapshot to decisions."""

from typing import Protocol

from policies.jct.terms import Term
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions


class Policy(Protocol):
    """Deterministic: the same snapshot and effort give the same answer."""

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        """Who starts, on which devices, with which plan; who is preempted; why each other pending job waits.

        effort: a bound on the search in steps of the policy's own; 0 asks for the quickest valid answer.
        """
        ...

    def terms(self, snapshot: ClusterSnapshot) -> dict[int, tuple[Term, ...]]:
        """Of each job, what its place in the queue is made of."""
        ...
