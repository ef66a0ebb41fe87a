"""What admin acts share: the version in If-Match, dry runs, and one way to ask the core and tell the audit log."""

from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header, Query

from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import Strict
from scheduler.core.events import Erase, Write
from scheduler.core.records import Record


class ActQuery(Strict):
    """dry_run: say what would change, and change nothing."""

    dry_run: bool = False


def _can_be_tried(query: Annotated[ActQuery, Query()], caller: CallerDep) -> None:
    if query.dry_run:
        caller.try_only()


CanBeTried = Annotated[None, Depends(_can_be_tried)]
"""For routes that act."""


def _version(if_match: Annotated[str | None, Header(max_length=100)] = None) -> str | None:
    """The version from an ETag that an earlier answer gave; `*` and none match everything."""
    if if_match is None or if_match.strip() == "*":
        return None
    return if_match.strip().removeprefix("W/").strip('"')


IfMatch = Annotated[str | None, Depends(_version)]


def etag(version: str) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


async def write(caller: Caller, record: Record, expected: str | None = None) -> None:
    """Make or change a record, durably, and put old and new into the audit log."""
    old = caller.cluster.state.book(record.kind).get(record.name)
    await caller.cluster.ask(
        lambda number: Write(request=number, actor=caller.user, record=record, expected=expected)
    )
    await _tell(caller, "change" if old is not None else "create", record, old, record)


async def erase(caller: Caller, record: Record) -> None:
    """Raises JctError NOT_FOUND where it is gone already."""
    await caller.cluster.ask(
        lambda number: Erase(request=number, actor=caller.user, kind=record.kind, name=record.name)
    )
    await _tell(caller, "remove", record, record, None)


async def _tell(caller: Caller, action: str, record: Record, old: Record | None, new: Record | None) -> None:
    def plain(value: Record | None) -> Any:
        return None if value is None else msgspec.to_builtins(value)

    await caller.record(f"{action} {record.kind}", f"{record.kind} {record.name}", old=plain(old), new=plain(new))
