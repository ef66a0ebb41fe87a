"""Questions about the future, answered in a child process of the daemon so that no pass ever waits for one.

Run as `python -P -m scheduler.forecast.process`. Question and answer are msgpack.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache, partial

import msgspec

from policies import registry
from policies.jct.policy import Policy
from policies.jct.terms import Term
from policies.model.cluster import ClusterSnapshot
from scheduler.child import Child, own_output, serve
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate, Pace, run_ahead

FUTURES = 5
LIMIT_S = 60.0
BUDGET_S = 20.0
NICENESS = 10
"""What the child spends on a question, all its futures together; it then breaks off."""


class World(msgspec.Struct, frozen=True):
    """A fork, encoded, and the policy to run it ahead with."""

    fork: bytes
    policy: str


class Weigh(msgspec.Struct, frozen=True, tag=True):
    """What each job's place in the queue is made of."""

    snapshot: ClusterSnapshot
    policy: str


class Foresee(msgspec.Struct, frozen=True, tag=True):
    """The same futures of every world: what is drawn for a job is drawn alike in all."""

    worlds: tuple[World, ...]
    seed: int
    futures: int = FUTURES
    pace: Pace = Pace()
    budget_s: float = BUDGET_S


Futures = tuple[tuple[Fate, ...], ...]
Foreseen = tuple[Futures, ...]
"""For each world its futures."""
Weighed = dict[int, tuple[Term, ...]]
Question = Foresee | Weigh

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_futures = msgspec.msgpack.Decoder(Foreseen | str).decode
_decode_terms = msgspec.msgpack.Decoder(Weighed | str).decode


class NotForeseen(Exception):
    """There is no answer: it took too long, or the policy failed."""


class ForecastProcess:
    """One question at a time; the caller sees to that."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._child = Child("scheduler.forecast.process")
        self._limit_s = limit_s

    @property
    def pid(self) -> int | None:
        return self._child.pid

    async def foresee(self, question: Foresee) -> Foreseen:
        """Raises NotForeseen; the child is killed where it was late."""
        told = _decode_futures(await self._ask(question))
        if isinstance(told, str):
            raise NotForeseen(told)
        return told

    async def weigh(self, question: Weigh) -> Weighed:
        """Raises NotForeseen."""
        told = _decode_terms(await self._ask(question))
        if isinstance(told, str):
            raise NotForeseen(told)
        return told

    async def _ask(self, question: Question) -> bytes:
        try:
            return await self._child.ask(_encode(question), self._limit_s)
        except (TimeoutError, EOFError, OSError) as error:
            await self._child.close()
            why = f"took over {self._limit_s:g} s" if isinstance(error, TimeoutError) else "ended without an answer"
            raise NotForeseen(f"the forecast {why}") from error

    async def close(self) -> None:
        await self._child.close()


_policy = cache(registry.find)


def answer(question: Foresee, policies: Sequence[Policy], spent_s: "Clock") -> Foreseen:
    """policies: one a world. Futures are run one after the other, each in all worlds, while there is budget left; there
    is at least one."""
    found: list[list[tuple[Fate, ...]]] = [[] for _ in question.worlds]
    runs = question.futures * len(question.worlds)
    for number in range(runs):
        world = number % len(question.worlds)
        if world == 0 and number and spent_s() > question.budget_s:
            break
        until_s = question.budget_s * (number + 1) / runs if number else question.budget_s
        fork = forks.decode(question.worlds[world].fork)
        seed = question.seed + number // len(question.worlds)
        enough = partial(_is_over, spent_s, until_s)
        found[world].append(tuple(run_ahead(fork, policies[world], seed, question.pace, enough)))
    return tuple(tuple(futures) for futures in found)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._since_s


def _is_over(spent_s: Clock, until_s: float) -> bool:
    return spent_s() > until_s


def _reply(data: bytes) -> bytes:
    try:
        question = _decode_question(data)
        told: Foreseen | Weighed | str
        if isinstance(question, Weigh):
            told = _policy(question.policy).terms(question.snapshot)
        else:
            told = answer(question, [_policy(world.policy) for world in question.worlds], Clock())
    except Exception as error:
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}"
    return _encode(told)


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(_reply, sys.stdin.buffer, own_output())
