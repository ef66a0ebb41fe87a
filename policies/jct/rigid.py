"""Jobs that come in one size, nearly all: little to choose but who runs, so the joint decision becomes an order.

Least device-seconds first, the right order where sizes bend to what is free, is a poor one for gangs that do not: the
shortest job first, stopping much longer ones, leaves fewer waiting. On the Rubick workload with the sizes that users
asked for, at 0.6 to 2 times its load, it ends jobs in 0.5 to 1.03 times the time on average. Beyond `srtf` it keeps the
bound on waiting, leaves jobs alone until they have settled, and stops one only for a job that is much shorter than what
is left of it. What started beyond its bound is stopped only for what is more overdue: starved jobs that stopped one
another would each pay for a start and begin to wait anew. The few that have a size to choose start with the size that
was asked for, and grow as others do.
"""

import math
from collections.abc import Iterable, Sequence

from policies.jct.ordered import Book, Preempting, asked_options
from policies.jct.patience import Patience, overdue_s, overdue_since_start_s, starves
from policies.jct.terms import Term
from policies.jct.work import Work, settles_s

RUNS_ON = 0.7
"""What is left of a running job counts so much: stopping it costs a restart, and its place may not come again."""

MOSTLY = 0.8
"""Of the jobs, at least so many have no size to choose where the order is theirs."""

STARVED, SETTLING, OTHERS = 0.0, 1.0, 2.0
FIRST_OF_EQUALS = -math.inf
"""Where an age stands in the order of waiting jobs: one that runs does not stop for one that is no shorter."""


def are_rigid(works: Iterable[Work]) -> bool:
    """Whether hardly any job has a size to choose."""
    found = [work.options[0].devices == work.options[-1].devices for work in works if work.options]
    return sum(found) >= MOSTLY * len(found)


def order(work: Work) -> tuple[float, float, str]:
    """Of waiting jobs within their bound: the shortest per weight first."""
    return _takes_s(work) / work.job.weight, -work.job.age_s, work.job.id


def terms(work: Work) -> tuple[Term, ...]:
    """Of that order."""
    weight = Term("log2 of weight", math.log2(work.job.weight))
    return weight, Term("-log2 of seconds left", -math.log2(max(_takes_s(work), 1e-9)))


def _takes_s(work: Work) -> float:
    return min((work.takes_s(option) for option in asked_options(work)), default=math.inf if work.current else 0.0)


class Rigid(Preempting):
    """settled_restarts: see `joint.Settings`."""

    def __init__(self, bound: Patience, settled_restarts: float) -> None:
        self._bound = bound
        self._settled_restarts = settled_restarts

    def key(self, work: Work) -> tuple[float, ...]:
        if work.current is not None:
            if (late_s := overdue_since_start_s(self._bound, work)) > 0.0:
                return STARVED, -late_s
            settling = settles_s(work.job, work.current, self._settled_restarts) > 0.0
            left_s = min(RUNS_ON * work.left_s, _takes_s(work))  # never behind where it would be if it waited
            left_s = max(0.0, left_s - work.job.stop_loses_s)
            return SETTLING if settling else OTHERS, left_s / work.job.weight, FIRST_OF_EQUALS
        if self._starves(work):
            return STARVED, -overdue_s(self._bound, work)
        return OTHERS, *order(work)[:2]

    def fixed(self, work: Work) -> bool:
        return work.job.fixed or (bool(work.job.placement) and work.current is None)

    def blocked(self, work: Work, book: Book, fixed: Sequence[Work]) -> None:
        """Nothing is started where a starved job will be, once those that may not be stopped have ended."""
        if self._starves(work):
            free_in_s: dict[str, float] = {}
            for other in fixed:
                left_s = other.left_s if other.current is not None else math.inf
                for node in other.job.placement:
                    free_in_s[node] = max(free_in_s.get(node, 0.0), left_s)
            book.reserve(work, free_in_s)

    def _starves(self, work: Work) -> bool:
        return work.job.waits and bool(work.options) and starves(self._bound, work)
