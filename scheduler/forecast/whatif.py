"""What would be if: the same event that an act would cause is applied to a fork, and both worlds are run ahead.

Both have the same futures, job by job, so that what differs between them is the act's doing.
"""

import itertools
from collections.abc import Iterable, Sequence
from statistics import fmean, median

import msgspec

from scheduler.core.entities import Job, JobState
from scheduler.core.events import CoreEvent, NodeHello
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.forecast import fork as forks
from scheduler.forecast.ahead import Fate
from scheduler.protocol.messages import DeviceInfo, Hello

SETTINGS = CoreSettings(new_nodes=1 << 30)
"""As many nodes as are imagined."""

LEAST_MOVE_S = 1.0
"""What moves by less has not moved."""

Futures = Sequence[Sequence[Fate]]


class Moved(msgspec.Struct, frozen=True):
    """A job whose start or end would be another. Moments in microseconds, medians over the futures; None where
    there is none in most of them, and ends where they are a guess. preempted: it would be stopped more often than now.
    runs: it does now. unknown: an end is a guess, since nothing tells how much work the job has."""

    job: int
    name: str
    team: str
    start_before_us: int | None
    start_after_us: int | None
    end_before_us: int | None
    end_after_us: int | None
    preempted: bool
    runs: bool
    unknown: bool


class TeamChange(msgspec.Struct, frozen=True):
    """Mean JCT in seconds of a team's jobs that end in both worlds; None where there is none. left_out: further jobs,
    whose ends are guesses."""

    team: str
    jobs: int
    left_out: int
    jct_before_s: float | None
    jct_after_s: float | None


class Comparison(msgspec.Struct, frozen=True):
    """futures: how many were compared."""

    moved: tuple[Moved, ...]
    teams: tuple[TeamChange, ...]
    futures: int

    @property
    def changes(self) -> bool:
        return bool(self.moved)


def imagine(data: bytes, events: Iterable[CoreEvent]) -> bytes:
    """The fork after these events. Raises JctError where the core refuses one."""
    fork = forks.decode(data)
    for event in events:
        out = step(fork.state, event, fork.now_us, SETTINGS)
        for reply in out.replies:
            if reply.error is not None:
                raise reply.error
    return forks.encode(fork)


def more_nodes(state: State, groups: Iterable[tuple[int, int, str]]) -> list[NodeHello]:
    """Nodes that say Hello. groups: how many nodes, devices of each, and their kind."""
    wanted = [(devices, kind) for nodes, devices, kind in groups for _ in range(nodes)]
    free = (name for n in itertools.count() if (name := f"imagined-{n}") not in state.nodes)
    return [
        NodeHello(
            hello=Hello(
                node=name, machine=name, boot="imagined", session="imagined", address="", reports=(),
                devices=tuple(DeviceInfo(id=f"{name}/{n}", kind=kind, index=n) for n in range(devices)),
            ),
            public_key=name,
        )
        for name, (devices, kind) in zip(free, wanted, strict=False)
    ]  # fmt: skip


def compare(state: State, before: Futures, after: Futures) -> Comparison:
    """state: at the fork, for names and teams."""
    count = min(len(before), len(after))
    old, new = _by_job(before[:count]), _by_job(after[:count])
    jobs = [job for job in state.jobs.values() if job.state is not JobState.DONE and job.id in old and job.id in new]
    moved = (_moved(job, list(zip(old[job.id], new[job.id], strict=True))) for job in jobs)
    teams = sorted({job.spec.team for job in jobs})
    changes = (_team(team, [job for job in jobs if job.spec.team == team], old, new) for team in teams)
    return Comparison(
        tuple(one for one in moved if one is not None), tuple(one for one in changes if one is not None), count
    )


def _moved(job: Job, pairs: list[tuple[Fate, Fate]]) -> Moved | None:
    """None where it does not. pairs: before and after, by future."""
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    preempted = fmean(b.preemptions - a.preemptions for a, b in pairs) >= 0.5
    moves = _moves([(a.end_us, b.end_us) for a, b in pairs]) or _moves([(a.start_us, b.start_us) for a, b in pairs])
    if not moves and not preempted:
        return None
    return Moved(
        job=job.id, name=job.spec.name, team=job.spec.team, start_before_us=_middle([a.start_us for a in before]),
        start_after_us=_middle([b.start_us for b in after]), end_before_us=_end(before), end_after_us=_end(after),
        preempted=preempted, runs=job.state is JobState.ACTIVE, unknown=_is_guess(before) or _is_guess(after),
    )  # fmt: skip


def _end(fates: Sequence[Fate]) -> int | None:
    return None if _is_guess(fates) else _middle([fate.end_us for fate in fates])


def _is_guess(fates: Iterable[Fate]) -> bool:
    """As `jct eta` has it: one end drawn from nothing is enough."""
    return any(fate.guessed for fate in fates)


def _by_job(futures: Futures) -> dict[int, list[Fate]]:
    fates: dict[int, list[Fate]] = {}
    for future in futures:
        for fate in future:
            fates.setdefault(fate.job, []).append(fate)
    return {job: mine for job, mine in fates.items() if len(mine) == len(futures)}


def _middle(moments: Sequence[int | None]) -> int | None:
    known = [moment for moment in moments if moment is not None]
    return round(median(known)) if len(known) * 2 > len(moments) else None


def _moves(pairs: Sequence[tuple[int | None, int | None]]) -> bool:
    """In the middle future, or by coming or ceasing to come in most."""
    if sum((a is None) != (b is None) for a, b in pairs) * 2 > len(pairs):
        return True
    shifts = [abs(b - a) / 1e6 for a, b in pairs if a is not None and b is not None]
    return bool(shifts) and median(shifts) >= LEAST_MOVE_S


def _team(
    team: str, jobs: Sequence[Job], old: dict[int, list[Fate]], new: dict[int, list[Fate]]
) -> TeamChange | None:
    """None where none of its jobs ends, and none is left out."""
    known = [job for job in jobs if not _is_guess([*old[job.id], *new[job.id]])]
    left_out = len(jobs) - len(known)
    ends = [
        (a.end_us - job.submitted_us, b.end_us - job.submitted_us)
        for job in known
        for a, b in zip(old[job.id], new[job.id], strict=True)
        if a.end_us is not None and b.end_us is not None
    ]
    if not ends:
        return TeamChange(team, len(known), left_out, None, None) if left_out else None
    before_s, after_s = fmean(a for a, _ in ends) / 1e6, fmean(b for _, b in ends) / 1e6
    return TeamChange(team, len(known), left_out, before_s, after_s)
