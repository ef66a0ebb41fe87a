"""Measured timelines: now and then a step's spans of all ranks, as the same value that a prediction is."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from policies.ir.timeline import Span, Timeline
from policies.traps import Communication, traps
from worker import processes
from worker.checkpoint.directory import Directory
from worker.rendezvous import Rendezvous

Timed = TypeVar("Timed", Span, Communication)

FILE_NAME = "timeline.json"
FIRST, EVERY = 3, 100
GATHER_S = 10.0


class Timelines:
    """One rank's part. A step's spans go to the store; the pilot puts them together when the next step is traced.

    Ranks of one machine share a clock. Those of others count from the end of the last all-reduce, which all ranks leave
    at about the same time: clocks of two machines are never compared.
    """

    def __init__(self, meet: Rendezvous, rank: int, ranks: int, folder: Path | None) -> None:
        """folder: where the pilot writes FILE_NAME; None on other ranks."""
        self._meet, self._rank, self._ranks, self._folder = meet, rank, ranks, folder
        self._steps = 0
        self._given: int | None = None
        self.traps: list[str] = []
        """That the newest traced step ran into, in the pilot's member."""

    def begin(self) -> list[Span] | None:
        """Called before each step: a list to fill when it shall be traced."""
        self._steps += 1
        if self._given is not None and self._steps == self._given + EVERY // 2:
            self._put_together(self._given)
        return [] if self._steps % EVERY == FIRST else None

    def give(self, spans: list[Span], sums: list[Communication], zero_s: float) -> None:
        """zero_s: end of the last all-reduce before the step, on the clock of spans and sums."""
        self._given = self._steps
        part = {
            "boot": processes.boot_id(),
            "zero_s": zero_s,
            "spans": [msgspec.to_builtins(span) for span in spans],
            "sums": [msgspec.to_builtins(one) for one in sums],
        }
        self._meet.set(f"timeline/{self._steps}/{self._rank}", part)

    def _put_together(self, step: int) -> None:
        """Half a period later every rank has given its part."""
        if self._folder is None:
            return
        keys = [f"timeline/{step}/{rank}" for rank in range(self._ranks)]
        parts = self._meet.gather(keys, GATHER_S)
        self._meet.delete(keys)
        timeline = assemble(parts)
        self.traps = traps(timeline, _shifted(parts, "sums", Communication))
        with contextlib.suppress(OSError):  # a full disk on the node costs a picture, not the job
            write(self._folder, timeline)


def assemble(parts: Sequence[Mapping[str, Any]]) -> Timeline:
    """parts: of each rank, with its machine's boot id, its zero and its spans."""
    spans = sorted(_shifted(parts, "spans", Span), key=lambda span: (span.start_s, span.rank))
    return Timeline(len(parts), tuple(spans), max(span.end_s for span in spans))


def _shifted(parts: Sequence[Mapping[str, Any]], what: str, kind: type[Timed]) -> list[Timed]:
    """Of all ranks, on one clock."""
    first, found = parts[0], []
    for part in parts:
        zero_s = first["zero_s"] if part["boot"] == first["boot"] else part["zero_s"]
        for one in (msgspec.convert(one, kind) for one in part[what]):
            found.append(replace(one, start_s=one.start_s - zero_s, end_s=one.end_s - zero_s))
    return found


def write(folder: Path, timeline: Timeline) -> None:
    Directory(folder).write(FILE_NAME, json.dumps(msgspec.to_builtins(timeline)).encode(), "pilot")


def read(folder: Path) -> Timeline:
    return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=Timeline)
