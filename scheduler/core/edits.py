"""Changes of what people decide: fields of a job, and records of teams, queues and the like.

A change carries the version that its author has seen, if any: where the value is another by now, nothing happens and
the answer is a CONFLICT.
"""

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from policies.planner import divisible_counts
from scheduler.core.caps import holders, too_much, use_of
from scheduler.core.effects import Reply
from scheduler.core.entities import Job, JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Change, Erase, Write
from scheduler.core.records import DEFAULT_QUEUE, Capped, Record
from scheduler.core.sizes import must_stop_to_change, size_of
from scheduler.core.snapshot import menu_request
from scheduler.core.turn import Turn

_RANGE = ("min_devices", "max_devices", "allowed_devices")
_CAPS = ("max_devices", "max_running", "max_pending")


def version_of(value: Job | Record) -> str:
    """Of what people can change in it; equal values have equal versions."""
    seen: Any = msgspec.to_builtins(value)
    if isinstance(value, Job):
        seen = [value.id, value.priority, value.first_us, value.wanted, msgspec.to_builtins(value.spec)]
    return hashlib.sha256(msgspec.json.encode(seen, order="sorted")).hexdigest()[:16]


def change(turn: Turn, event: Change) -> None:
    """Raises nothing: refusals are answers. Names are `priority` and those of JobSpec."""
    job = turn.state.jobs.get(event.job)
    try:
        if job is None:
            raise JctError(Code.NOT_FOUND, f"there is no job {event.job}", hint="list yours with: jct ls -a")
        _expect(event.expected, job, f"job {job.id}")
        changed = _changed(turn, job, dict(event.changes))
    except JctError as error:
        turn.out.replies.append(Reply(event.request, error=error))
        return
    if changed != job:
        turn.put(changed)
        turn.state.unmet.pop(job.id, None)
        old, new = _difference(job, changed, event)
        text = ", ".join(f"{name} {old[name]} -> {new[name]}" for name in new)
        kind = "PriorityChanged" if list(new) == ["priority"] else "Changed"
        data = {"old": old["priority"], "new": new["priority"]} if kind != "Changed" else {"old": old, "new": new}
        turn.note(kind, text, actor=event.actor, job=job.id, data=data)
        turn.replan()
    turn.out.replies.append(Reply(event.request, job.id))


def _expect(expected: str | None, value: Job | Record | None, name: str) -> None:
    if expected is not None and (value is None or expected != version_of(value)):
        raise JctError(Code.CONFLICT, f"{name} has changed meanwhile", hint="look at it again, then repeat the change")


def _changed(turn: Turn, job: Job, changes: dict[str, Any]) -> Job:
    """Raises JctError where the job's state or a cap forbids it."""
    if job.state is JobState.DONE:
        message = f"job {job.id} has already ended ({job.result})"
        raise JctError(Code.CONFLICT, message, hint="submit it again as a new job")
    if "begin_us" in changes and job.state is not JobState.QUEUED:
        message = f"job {job.id} has begun; its begin time can be changed only while it waits"
        raise JctError(Code.CONFLICT, message, hint=_once_held(job))
    if "queue" in changes and changes["queue"] not in turn.state.queues:
        raise JctError(Code.BAD_SPEC, f"there is no queue {changes['queue']!r}", field="queue")
    changed = replace(
        job, priority=changes.pop("priority", job.priority), spec=msgspec.structs.replace(job.spec, **changes)
    )
    if holders(changed) != holders(job):
        _check_new_holders(turn, job, changed)
    if job.state is not JobState.QUEUED and any(getattr(changed.spec, n) != getattr(job.spec, n) for n in _RANGE):
        _check_new_range(turn, changed)
    return changed


def _once_held(job: Job) -> str:
    return f"jct hold {job.id} saves and stops it; then change it, and: jct release {job.id}"


def _check_new_range(turn: Turn, new: Job) -> None:
    """Of a job that has begun. Raises JctError where it could not change its size, or only at the cost of its work."""
    if new.spec.is_command:
        message = f"job {new.id} runs a command, whose GPUs can be changed only while it waits"
        raise JctError(Code.CONFLICT, message, hint=_once_held(new))
    if not divisible_counts(menu_request(turn.state, new)):
        message = f"no number of GPUs in that range divides into stages and replicas of job {new.id}"
        raise JctError(Code.BAD_SPEC, message, field="gpus", hint="name a wider range")
    size = size_of(turn.state, new)
    loses = new.spec.checkpoint is None and must_stop_to_change(turn.state, new)
    if loses and size is not None and not new.spec.allows(size):
        message = f"job {new.id} cannot change its size while it trains, and writes no checkpoints: it would begin anew"
        raise JctError(Code.CONFLICT, message, hint=f"jct cancel {new.id}, then submit it with the size it is to have")


def _check_new_holders(turn: Turn, old: Job, new: Job) -> None:
    """What it has must fit below the caps of its new team and queue."""
    use = use_of(turn.state)
    devices = {lease.device for lease in turn.state.leases.values() if lease.job == old.id}
    if old.id in turn.state.resizing:
        devices |= set(turn.state.resizing[old.id][0].devices)
    runs = old.state is JobState.ACTIVE
    for holder in set(holders(old)):  # it does not count against those it stays with
        use.devices.get(holder, set()).difference_update(devices)
        use.running[holder] -= runs
    if runs and (over := too_much(turn.state, use, new, devices)) is not None:
        raise JctError(Code.QUOTA, f"job {old.id} would be too much there: {over[1]}")


def _difference(old: Job, new: Job, event: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    def values(job: Job) -> dict[str, Any]:
        return {name: job.priority if name == "priority" else getattr(job.spec, name) for name in event.changes}

    before, after = values(old), values(new)
    differing = [name for name in after if after[name] != before[name]]
    return {name: before[name] for name in differing}, {name: after[name] for name in differing}


def write(turn: Turn, event: Write) -> None:
    """A new or changed record."""
    record = event.record
    old = turn.state.book(record.kind).get(record.name)
    try:
        _expect(event.expected, old, f"{record.kind} {record.name!r}")
    except JctError as error:
        turn.out.replies.append(Reply(event.request, error=error))
        return
    if isinstance(record, Capped):
        first = turn.state.counters.lease
        if old is not None and all(getattr(old, name) == getattr(record, name) for name in _CAPS):
            first = old.capped_lease
        record = replace(record, capped_lease=first)
    if record != old:
        turn.put(record)
        data = {"old": msgspec.to_builtins(old) if old is not None else None, "new": msgspec.to_builtins(record)}
        verb = "changed" if old is not None else "made"
        turn.note("Written", f"{record.kind} {record.name!r} {verb}", actor=event.actor, data=data)
        turn.replan()
    turn.out.replies.append(Reply(event.request, 0))


def erase(turn: Turn, event: Erase) -> None:
    """The record is gone, and what it limited is not limited any more. A queue with jobs stays."""
    book = turn.state.book(event.kind)
    error = None
    if event.name not in book:
        error = JctError(Code.NOT_FOUND, f"there is no {event.kind} {event.name!r}")
    elif event.kind == "queue" and (why := _needed(turn, event.name)):
        error = JctError(Code.CONFLICT, f"queue {event.name!r} {why}")
    if error is not None:
        turn.out.replies.append(Reply(event.request, error=error))
        return
    old = book.pop(event.name)
    turn.out.gone_records.append((event.kind, event.name))
    data = {"old": msgspec.to_builtins(old), "new": None}
    turn.note("Erased", f"{event.kind} {event.name!r} removed", actor=event.actor, data=data)
    turn.replan()
    turn.out.replies.append(Reply(event.request, 0))


def _needed(turn: Turn, queue: str) -> str:
    if queue == DEFAULT_QUEUE:
        return "is where jobs go that name none"
    living = [job.id for job in turn.state.jobs.values() if job.spec.queue == queue and job.state is not JobState.DONE]
    return f"has {len(living)} jobs that have not ended" if living else ""
