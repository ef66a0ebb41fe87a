"""What a program of unknown speed is offered: sizes up to twice what it has shown, by the curve through what it showed.

Nobody knows how a command scales. Once its attempts have told their step times, its menu follows the speed curve
through them, and it grows only to at most twice its largest size so far: each step of exploration is bounded, and what
it shows there corrects the curve. A command that tells nothing keeps the guess that its menu came with.
"""

from collections.abc import Sequence
from dataclasses import replace

from policies.jct.problem import Options
from policies.jct.speed import SpeedCurve, Way, fit
from policies.model.cluster import MenuRequest, Observed

COMMAND = "command"
"""The model's name in the menu requests of commands: one step is a second on one device."""
GROWTH = 2


def is_command(request: MenuRequest) -> bool:
    return bool(request.profiles) and request.profiles[0].name == COMMAND


def explored(menu: Options, observed: Sequence[Observed]) -> Options:
    """The menu as far as it may be explored. Step times stay in units of a step on one device, which only the curve of
    the same kind tells, or where the kind has shown nothing that of all kinds."""
    if not observed:
        return menu
    most = GROWTH * max(seen.devices for seen in observed)
    curves = {kind: _curve(observed, kind) for kind in dict.fromkeys(option.kind for option in menu)}
    return Options(
        replace(option, step_time_s=curve.step_time_s(Way((option.devices,))) / curve.step_time_s(Way((1,))))
        for option in menu
        if option.devices <= most and (curve := curves[option.kind])
    )


def _curve(observed: Sequence[Observed], kind: str) -> SpeedCurve:
    rows = [seen for seen in observed if seen.kind == kind] or observed
    return fit([(Way((seen.devices,)), seen.step_time_s) for seen in rows])
