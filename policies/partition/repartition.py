"""Incremental repartition: from a running cut to a better one by small moves. Never worse than what runs."""

from collections.abc import Callable, Iterator, Sequence

from policies.partition.blocks import Bounds

Objective = Callable[[Bounds], tuple[float, ...]]
"""What a cut costs, smaller is better; infinite where it does not fit. Further entries break ties."""


def improve(bounds: Bounds, allowed: Sequence[int], objective: Objective, evaluations: int = 20_000) -> Bounds:
    """Hill-climb over neighbouring cuts until none is better or the budget of evaluations is used up.

    allowed: layer indices where a cut may be, ascending, both ends included. Deterministic.
    """
    position = {layer: index for index, layer in enumerate(allowed)}
    best, cost = bounds, objective(bounds)
    while True:
        for candidate in _neighbours(best, allowed, position):
            evaluations -= 1
            new = objective(candidate)
            if new < cost:
                best, cost = candidate, new
                break
            if evaluations <= 0:
                return best
        else:
            return best


def _neighbours(bounds: Bounds, allowed: Sequence[int], position: dict[int, int]) -> Iterator[Bounds]:
    """Move one boundary by one or two allowed places; or a run of boundaries by one, which passes a block along a row
    of stages from one that has too much to one that has room."""
    inner = range(1, len(bounds) - 1)
    places = [position[bound] for bound in bounds]
    for distance in (1, 2):
        for boundary in inner:
            for step in (-distance, distance):
                yield from _shifted(bounds, places, boundary, boundary, step, allowed)
    for first in inner:
        for last in range(first + 1, len(bounds) - 1):
            for step in (-1, 1):
                yield from _shifted(bounds, places, first, last, step, allowed)


def _shifted(
    bounds: Bounds, places: Sequence[int], first: int, last: int, step: int, allowed: Sequence[int]
) -> Iterator[Bounds]:
    if places[first - 1] < places[first] + step and places[last] + step < places[last + 1]:
        moved = tuple(allowed[place + step] for place in places[first : last + 1])
        yield bounds[:first] + moved + bounds[last + 1 :]
