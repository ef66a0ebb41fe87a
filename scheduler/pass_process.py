"""The policy in a child process of the daemon: long-lived, so that it keeps its menus; killed when it is late.

    daemon -> child: a snapshot and the effort        child -> daemon: Decisions, or what went wrong as text

Each is one frame on the child's standard input or output: a length of eight bytes, then msgpack. The child ends when
its input does, whatever ended the daemon. Run as `python -P -m scheduler.pass_process POLICY`.
"""

import asyncio
import contextlib
import sys
import traceback
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
import structlog

from policies import registry
from policies.jct.policy import Policy
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions

log = structlog.get_logger()

LIMIT_S = 10.0
EFFORT = 6_000
LENGTH_BYTES = 8

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(tuple[ClusterSnapshot, int]).decode
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
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the present child, if there is one."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

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
        if self.pid is None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "scheduler.pass_process", self._policy,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )

    async def close(self) -> None:
        """Kill the child and collect it."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        assert child.stdin is not None
        child.stdin.close()
        await child.communicate()

    async def _ask(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        async with asyncio.timeout(self._limit_s):
            await self.start()
            assert self._child is not None
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._child.stdin.write(_frame((snapshot, effort)))
            await self._child.stdin.drain()
            length = int.from_bytes(await self._child.stdout.readexactly(LENGTH_BYTES))
            told = _decode_answer(await self._child.stdout.readexactly(length))
        if isinstance(told, Decisions):
            return told
        raise PassFailed(told)


def serve(policy: Policy, inlet: BinaryIO, outlet: BinaryIO) -> None:
    """The child's life: answer each question until there are no more."""
    while len(head := inlet.read(LENGTH_BYTES)) == LENGTH_BYTES:
        snapshot, effort = _decode_question(inlet.read(int.from_bytes(head)))
        try:
            told: Decisions | str = policy.decide(snapshot, effort)
        except Exception as error:
            traceback.print_exc()
            told = f"{type(error).__name__}: {error}"
        outlet.write(_frame(told))
        outlet.flush()


def _frame(value: object) -> bytes:
    body = _encode(value)
    return len(body).to_bytes(LENGTH_BYTES) + body


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(registry.find(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
