"""An agent's word is written down a bounded number of times: one that raves, or is not ours any more, fills no table.

Of each kind of event that an agent can repeat at will, MOST within WINDOW_US are written for each agent; then one line
tells that the rest is left out. What can happen once only, such as a member's end, is never left out.
"""

from dataclasses import dataclass
from typing import NamedTuple

MOST, WINDOW_US = 200, 600_000_000
"""Eight jobs of a node that each save twice a minute stay below."""
MOST_KNOWN = 100_000
"""Speakers and kinds that are remembered: beyond that those whose window began first are forgotten."""

STRANGERS = "unknown keys"
"""Refused ones speak as one: anybody can make a fresh key for each word."""

NEWCOMERS = "new nodes", "NodeUp"
"""Those that register for the first time have one allowance, see CoreSettings.new_nodes: a node may come with another
name and key each time."""

REPEATABLE = frozenset(
    {
        "Checkpointed", "DeviceCalm", "DeviceContested", "DeviceUnwell", "DeviceWell", "DrainBudgetSpent",
        "ForeignMember", "NodeRebooted", "NodeRefused", "NodeUnwell", "NodeUp", "NodeWell", "PredictorFellBack",
        "PredictorRestored", "Probed", "Repartitioned", "Told",
    }
)  # fmt: skip
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    """How many events of one kind an agent has caused since a moment."""

    since_us: int
    count: int


class Allowance(NamedTuple):
    """first_too_many: the first of its window that may not be written. most: how many may."""

    may: bool
    first_too_many: bool
    most: int

    def told(self, kind: str) -> str:
        minutes = WINDOW_US // 60_000_000
        what = f"more than {self.most} events {kind} within {minutes} minutes"
        return f"{what}; further ones are left out until these are over"


def may_say(book: dict[Key, Said], key: Key, now_us: int, most: int | None = None) -> Allowance:
    """Whether one more may be written; it is counted. key: the speaker and the kind of event. most: instead of MOST."""
    said = _present(book, key, now_us)
    if not said.count:
        book.pop(key, None)  # the book is in the order in which windows began
    book[key] = Said(said.since_us, said.count + 1)
    while len(book) > MOST_KNOWN:
        del book[next(iter(book))]
    most = MOST if most is None else most
    return Allowance(said.count < most, said.count == most, most)


def has_room(book: dict[Key, Said], key: Key, now_us: int, most: int | None = None) -> bool:
    """Whether `may_say` would say yes."""
    return _present(book, key, now_us).count < (MOST if most is None else most)


def _present(book: dict[Key, Said], key: Key, now_us: int) -> Said:
    said = book.get(key)
    return said if said is not None and now_us - said.since_us < WINDOW_US else Said(now_us, 0)
