"""A copy of the core's state to run ahead: without what has ended, and without what is nobody's business there.

It travels as msgpack, so that a copy is cheap to make again for every future.
"""

from typing import Any, TypeVar

import msgspec

from scheduler.core.entities import AttemptKind, Job, JobState, Result
from scheduler.core.state import Counters, State
from scheduler.core.story import Story, story_of
from scheduler.protocol.spec import JobSpec

_Key = TypeVar("_Key", bound=tuple[Any, ...])
_Value = TypeVar("_Value")

HISTORY = 400
"""Newest jobs whose arrivals and work tell of those to come."""


class Arrival(msgspec.Struct, frozen=True):
    """A job that came. work: the steps it took, a command's in seconds; None while it is not known."""

    submitted_us: int
    user: str
    spec_key: str
    spec: JobSpec
    work: float | None = None
    ended: bool = False


class Fork(msgspec.Struct, frozen=True):
    """state: the core's at now_us, jobs that have ended left out. arrivals: the newest jobs, oldest first."""

    now_us: int
    state: State
    arrivals: tuple[Arrival, ...] = ()


def take(state: State, now_us: int) -> Fork:
    """Shares its entities with the state: encode it before the state moves on."""
    holding = {lease.job for lease in state.leases.values()}
    jobs = {id: job for id, job in state.jobs.items() if job.state is not JobState.DONE or id in holding}
    newest = list(state.jobs.values())[-HISTORY:]
    arrivals = tuple(_arrival(state, job) for job in newest)
    copy = State(
        epoch=state.epoch, jobs=jobs, attempts=_of(state.attempts, jobs), generations=_of(state.generations, jobs),
        members=_of(state.members, jobs), leases=dict(state.leases), nodes=dict(state.nodes),
        devices=dict(state.devices), profiles=dict(state.profiles), teams=dict(state.teams), users=dict(state.users),
        queues=dict(state.queues), classes=dict(state.classes), drains=dict(state.drains),
        reservations=dict(state.reservations), accounts=dict(state.accounts),
        counters=Counters(state.counters.job, state.counters.lease, state.counters.event),
        progress=dict(state.progress), heard_us=dict(state.heard_us), said_hello=dict(state.said_hello),
        started_us=state.started_us, step_at_us=dict(state.step_at_us), foreign=dict(state.foreign),
        resizing=dict(state.resizing), changing=dict(state.changing), changed_us=dict(state.changed_us),
        stops_to_change=dict(state.stops_to_change), measured=state.measured, took=dict(state.took),
        labels=state.labels, observed=state.observed, contested=state.contested, version=state.version,
        plan_wanted=True,
    )  # fmt: skip
    return Fork(now_us, copy, arrivals)


def _of(book: dict[_Key, _Value], jobs: dict[int, Job]) -> dict[_Key, _Value]:
    return {key: value for key, value in book.items() if key[0] in jobs}


def _arrival(state: State, job: Job) -> Arrival:
    ended = job.state is JobState.DONE
    work: float | None = job.total_steps
    if job.spec.is_command:
        work = job.ran_us / 1e6 if job.result is Result.COMPLETED else None
    elif work is None and job.result is Result.COMPLETED:
        work = _last_step(story_of(state, job))
    return Arrival(job.submitted_us, job.user, job.spec_key, job.spec, work, ended)


def _last_step(story: Story) -> float | None:
    trained = [a.last_step for a in story.attempts if a.kind is not AttemptKind.PROBE and a.last_step is not None]
    return trained[-1] if trained else None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fork).decode


def encode(fork: Fork) -> bytes:
    return _encode(fork)


def decode(data: bytes) -> Fork:
    """A copy that shares nothing with any other."""
    return _decode(data)
