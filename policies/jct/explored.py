"""What a program of unknown speed is offered: sizes up to twice what it has shown, by the curve through what it showed.

Nobody knows how a command scales. Once its attempts have told their step times, its menu follows the speed curve
through them, and it grows only to at most twice its largest size so far: each step of exploration is bounded, and what
it shows there corrects the curve. A command that tells nothing keeps the guess that its menu came with.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, log

from policies.jct.problem import Options
from policies.jct.speed import SpeedCurve, Way, fit
from policies.model.cluster import MenuRequest, Observed

COMMAND = "command"
"""The model's name in the menu requests of commands: one step is a second on one device."""
GROWTH = 2

NOTCH = log(1.05)
"""Corrections are told in notches of 5%, so that passes share menus while a measurement wavers."""

Shown = tuple[tuple[str, int, int], ...]
"""Kind, devices, and notches of the logarithm of the seconds of a step."""


def is_command(request: MenuRequest) -> bool:
    return bool(request.profiles) and request.profiles[0].name == COMMAND


def explored(menu: Options, observed: Sequence[Observed]) -> Options:
    """The menu as far as it may be explored. Step times stay in units of a step on one device, which only the curve of
    the same kind tells, or where the kind has shown nothing that of all kinds."""
    return _explored(menu, shown) if (shown := _shown(observed)) else menu


def alone_s(observed: Sequence[Observed]) -> float | None:
    """Seconds that a step of the program's own takes on one device of the kind where it ran last; None where it has
    told no step time."""
    return _alone_s(_shown(observed), observed[-1].kind) if _shown(observed) else None


def _shown(observed: Sequence[Observed]) -> Shown:
    rows = ((one.kind, one.devices, one.step_time_s) for one in observed if one.step_time_s > 0)
    return tuple(sorted((kind, devices, round(log(step_s) / NOTCH)) for kind, devices, step_s in rows))


@lru_cache(maxsize=4096)
def _explored(menu: Options, shown: Shown) -> Options:
    most = GROWTH * max(devices for _, devices, _ in shown)
    curves = {kind: _curve(shown, kind) for kind in dict.fromkeys(option.kind for option in menu)}
    return Options(
        replace(option, step_time_s=curve.step_time_s(Way((option.devices,))) / curve.step_time_s(Way((1,))))
        for option in menu
        if option.devices <= most and (curve := curves[option.kind])
    )


@lru_cache(maxsize=4096)
def _alone_s(shown: Shown, kind: str) -> float:
    return _curve(shown, kind).step_time_s(Way((1,)))


def _curve(shown: Shown, kind: str) -> SpeedCurve:
    rows = [row for row in shown if row[0] == kind] or shown
    return fit([(Way((devices,)), exp(notches * NOTCH)) for _, devices, notches in rows])
