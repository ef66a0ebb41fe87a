"""A long-lived child process of the daemon that answers one question at a time, and is killed when it is late.

Question and answer are one frame each on the child's standard input and output: a length of eight bytes, then the
body. The child ends when its input does, whatever ended the daemon.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import BinaryIO

LENGTH_BYTES = 8


class Child:
    """`python -P -m MODULE ARGUMENTS...`, started when it is first needed."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = (sys.executable, "-P", "-m", module, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the present process, if there is one."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> bool:
        """Begin now, so that the first question need not wait for imports. Whether there was none before."""
        if self.pid is not None:
            return False
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        return True

    async def ask(self, question: bytes, limit_s: float) -> bytes:
        """Raises TimeoutError, EOFError or OSError; the process may then still be busy: `close` it."""
        async with asyncio.timeout(limit_s):
            await self.start()
            assert self._process is not None
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(_frame(question))
            await self._process.stdin.drain()
            length = int.from_bytes(await self._process.stdout.readexactly(LENGTH_BYTES))
            return await self._process.stdout.readexactly(length)

    async def close(self) -> None:
        """Kill the process and collect it."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.communicate()


def own_output() -> BinaryIO:
    """Standard output for frames alone: what libraries print there (a solver does) goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "wb")


def serve(answer: Callable[[bytes], bytes], inlet: BinaryIO, outlet: BinaryIO) -> None:
    """The child's life: answer each question until there are no more."""
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        while len(head := inlet.read(LENGTH_BYTES)) == LENGTH_BYTES:
            outlet.write(_frame(answer(inlet.read(int.from_bytes(head)))))
            outlet.flush()


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES) + body
