"""What a menu is worth: its useful options, and the cheapest way through the work."""

from functools import lru_cache

from policies.jct.problem import JobDemand, Option

SPREAD = 1.5
"""An option this much slower than the best of its size is not worth keeping for want of a better place."""


def options_of(job: JobDemand) -> tuple[Option, ...]:
    """The options worth considering, fewest devices first, then fastest."""
    return useful(job.menu, job.min_devices, job.max_devices)


@lru_cache(maxsize=16384)
def useful(menu: tuple[Option, ...], least: int, most: int) -> tuple[Option, ...]:
    """For each arrangement its fastest plan, without those that more devices make no faster."""
    best: dict[tuple[str, int, tuple[int, ...]], Option] = {}
    for option in menu:
        if least <= option.devices <= most and option.step_time_s > 0:
            key = (option.kind, option.devices, _canonical(option.per_node))
            if key not in best or option.step_time_s < best[key].step_time_s:
                best[key] = option
    ordered = sorted(best.values(), key=lambda o: (o.kind, o.devices, o.step_time_s, len(o.per_node), o.per_node))
    kept: list[Option] = []
    fastest: dict[str, float] = {}
    of_size: dict[tuple[str, int], float] = {}
    for option in ordered:
        size = (option.kind, option.devices)
        if size not in of_size:
            of_size[size] = option.step_time_s
            smaller = min((t for (kind, n), t in of_size.items() if kind == option.kind and n < option.devices),
                          default=float("inf"))  # fmt: skip
            fastest[option.kind] = smaller
        if option.step_time_s < fastest[option.kind] and option.step_time_s <= SPREAD * of_size[size]:
            kept.append(option)
    return tuple(sorted(kept, key=lambda o: (o.devices, o.step_time_s, o.kind, o.per_node)))


@lru_cache(maxsize=65536)
def _canonical(shape: tuple[int, ...]) -> tuple[int, ...]:
    """One name for all rotations of a shape and of its reverse."""
    if len(set(shape)) <= 1:
        return shape
    return min(way[i:] + way[:i] for way in (shape, shape[::-1]) for i in range(len(way)))
