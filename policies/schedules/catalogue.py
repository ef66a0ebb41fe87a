"""The schedules by name."""

from collections.abc import Callable

from policies.ir.schedule import Schedule
from policies.schedules.gpipe import gpipe
from policies.schedules.one_f_one_b import one_f_one_b

GENERATORS: dict[str, Callable[[int, int], Schedule]] = {"gpipe": gpipe, "1f1b": one_f_one_b}


def make_schedule(name: str, ranks: int, microbatches: int) -> Schedule:
    """The order of one step of one pipeline.

    Raises:
        ValueError: an unknown name, or counts below one.
    """
    if name not in GENERATORS:
        raise ValueError(f"unknown schedule {name!r}; choose one of {', '.join(GENERATORS)}")
    if ranks < 1 or microbatches < 1:
        raise ValueError(f"a pipeline needs at least one rank and one micro-batch, got {ranks} and {microbatches}")
    return GENERATORS[name](ranks, microbatches)
