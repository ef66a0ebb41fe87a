"""Who is preempted to make room."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may be preempted, with the devices that would help, and what it is worth (lower goes first)."""

    job: int
    devices: int
    value: tuple[int, ...]


def choose_victims(candidates: Sequence[Candidate], needed: int) -> tuple[int, ...]:
    """The fewest jobs that free `needed` devices, and among those the least valuable; empty where they cannot."""
    order = sorted(candidates, key=lambda candidate: (candidate.value, candidate.job))
    if needed <= 0 or sum(candidate.devices for candidate in order) < needed:
        return ()
    fewest, freed = 0, 0
    for size in sorted((candidate.devices for candidate in order), reverse=True):
        if freed >= needed:
            break
        fewest, freed = fewest + 1, freed + size
    later = sorted(candidate.devices for candidate in order)
    chosen: list[int] = []
    for candidate in order:
        del later[bisect_left(later, candidate.devices)]
        others = fewest - len(chosen) - 1
        if candidate.devices + sum(later[len(later) - others :]) >= needed:
            chosen.append(candidate.job)
            needed -= candidate.devices
        if len(chosen) == fewest:
            break
    return tuple(chosen)
