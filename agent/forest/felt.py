"""What a job feels of a slowdown of the time that its stage computes, and back: a stage that sleeps is not slowed.

With b the part of all time in which a member is on a core, and w the part of the time in which it is ready to run but
waits for a core, it waits W = b w / (1 - w) of all time. A stage that computes r times as long waits, and while it runs
it needs c = r (1 - w) times as long: undisturbed, of the step's time W and b (1 - 1/c) would not have passed. So its
step takes 1 / (1 - W - b (1 - 1/c)) times as long: at least 1 / (1 - W), since what it waited is measured, and at most
1 / (1 - W - b), since whatever a forest says of a stage that hardly ever runs, nobody takes from it more than it runs.
"""

from collections.abc import Mapping

LEAST_BUSY = 0.2
"""Of all time: below, a step time tells nothing of how long the stage computes."""
MOST = 100.0


def felt(ratio: float, values: Mapping[str, float | None]) -> float:
    """The step's ratio, of the ratio of the time that the stage computes. All of it where it is not known how it runs.

    values: features of a CPU device and of the member on it."""
    if (shares := _shares(values)) is None:
        return ratio
    busy, of_ready, of_all = shares
    inflated = max(1.0, ratio * (1 - of_ready))
    return 1 / (1 - of_all - busy * (1 - 1 / inflated))


def at_least_waited(ratio: float, values: Mapping[str, float | None]) -> float:
    """The ratio of the time that the stage computes, where a forest says less than what is measured: it waited."""
    shares = _shares(values)
    return ratio if shares is None else max(ratio, 1 / (1 - shares[1]))


def computed(ratio: float, values: Mapping[str, float | None]) -> float | None:
    """The other way round, for what step times show. None where they cannot tell: the stage sleeps for most of the
    time, or the step has lost more than the stage would have run."""
    if (shares := _shares(values)) is None:
        return ratio
    busy, of_ready, of_all = shares
    kept = busy - (1 - of_all - 1 / max(1.0, ratio))
    if busy < LEAST_BUSY or kept <= 0.0:
        return None
    return min(MOST, max(1.0, busy / kept) / (1 - of_ready))


def _shares(values: Mapping[str, float | None]) -> tuple[float, float, float] | None:
    """b, w and W; several threads are at most one core's."""
    busy, wait = values["own_busy_percent"], values["own_wait_percent"]
    if busy is None or wait is None or not 0 <= wait < 100:
        return None
    of_ready = wait / 100
    on_core = min(busy / 100, 1 - of_ready)
    return on_core, of_ready, on_core * of_ready / (1 - of_ready)
