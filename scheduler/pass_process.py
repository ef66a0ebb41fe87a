"""The policy in a child process of the daemon: long-lived, so that it keeps its menus; killed when it is late.

    daemon -> child: a Question        child -> daemon: Decisions, or what went wrong as text

Both are msgpack. The child is nicer than the daemon: on a host with few cores, answers come before plans. Run as
`python -P -m scheduler.pass_process POLICY`.
"""

import os
import sys
import traceback
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from policies import registry
from policies.jct.policy import Policy
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions
from scheduler.child import Child, own_output, serve
from scheduler.pass_question import Heard, Question, Told

log = structlog.get_logger()

LIMIT_S = 10.0
EFFORT = 6_000
NICENESS = 5

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_answer = msgspec.msgpack.Decoder(Decisions | str).decode


class PassFailed(Exception):
    """The policy gave no answer, neither with effort nor quickly."""


@dataclass(frozen=True, slots=True)
class Answer:
    """late: why this is the quick answer and not the good one; empty where it is the good one."""

    decisions: Decisions
    late: str = ""


class PassProcess:
    """Asks a policy by its name, one snapshot at a time."""

    def __init__(self, policy: str, limit_s: float = LIMIT_S, effort: int = EFFORT) -> None:
        self._policy = policy
        self._limit_s = limit_s
        self._effort = effort
        self._child = Child("scheduler.pass_process", policy)
        self._told = Told()

    @property
    def pid(self) -> int | None:
        """Of the present child, if there is one."""
        return self._child.pid

    async def decide(self, snapshot: ClusterSnapshot) -> Answer:
        """The policy's answer; where it is late or its process dies, the quickest valid answer of a new one.

        Raises:
            PassFailed: the policy raised, or the quick answer did not come either.
        """
        try:
            return Answer(await self._ask(snapshot, self._effort))
        except (TimeoutError, EOFError, OSError) as error:
            why = f"took over {self._limit_s:g} s" if isinstance(error, TimeoutError) else "ended without an answer"
        log.warning("scheduling pass is answered quickly instead", policy=self._policy, why=why)
        await self.close()
        try:
            return Answer(await self._ask(snapshot, 0), f"policy {self._policy} {why}; its quick answer was taken")
        except (TimeoutError, EOFError, OSError) as error:
            await self.close()
            raise PassFailed(f"policy {self._policy} {why}, and its quick answer did not come") from error

    async def start(self) -> None:
        """Begin the child now, so that the first pass need not wait for its imports."""
        if await self._child.start():
            self._told = Told()

    async def close(self) -> None:
        """Kill the child and collect it."""
        await self._child.close()

    async def _ask(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        if await self._child.start():
            self._told = Told()
        question = self._told.question(snapshot, effort)
        data = await self._child.ask(_encode(question), self._limit_s)
        try:
            answer = _decode_answer(data)
        except msgspec.DecodeError as error:
            raise PassFailed(f"policy {self._policy} answered what are no decisions: {error}") from error
        if isinstance(answer, Decisions):
            return answer
        raise PassFailed(answer)


def answer(policy: Policy, heard: Heard, data: bytes) -> bytes:
    """What the child says to one question."""
    question = _decode_question(data)
    snapshot = heard.snapshot(question)
    try:
        told: Decisions | str = policy.decide(snapshot, question.effort)
    except Exception as error:
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}"
    return _encode(told)


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(partial(answer, registry.find(sys.argv[1]), Heard()), sys.stdin.buffer, own_output())
