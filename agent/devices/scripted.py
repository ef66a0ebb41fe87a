"""Fake devices: what they measure stands in a script, and is the same in every run."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.devices.provider import Found, Reading
from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.telemetry import Process


class BadScript(ValueError):
    """The script of fake readings is not as described at `read_script`."""


class Moment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device measures from so many seconds after the agent's start on. The rest is missing, with `why`."""

    from_s: float = 0.0
    values: dict[str, float] = {}
    why: str = "the script has no value for it"
    throttled: tuple[str, ...] | None = None
    processes: tuple[Process, ...] | None = None
    unwell: str = ""


Script = Mapping[str, Sequence[Moment]]
NOTHING = Moment(why="a fake device measures nothing")


class Scripted:
    """The provider of fake devices."""

    names = ("busy_percent", "memory_used_bytes", "memory_total_bytes", "power_w", "temperature_c")
    blocks = False

    def __init__(
        self, devices: Sequence[DeviceInfo], script: Script | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """script: moments by the device's index, as text, or "*" for all others."""
        self._devices = {device.id: device for device in devices}
        self._script, self._clock_s, self._began_s = script or {}, clock_s, clock_s()
        self._made: dict[str, tuple[Moment, Reading]] = {}

    def find(self) -> Found:
        return Found(tuple(self._devices.values()))

    def read(self, id: str) -> Reading:
        """The same object while nothing has changed."""
        moment = self._moment(str(self._devices[id].index))
        known = self._made.get(id)
        if known is None or known[0] is not moment:
            known = self._made[id] = moment, self._reading(moment)
        return known[1]

    def _moment(self, index: str) -> Moment:
        passed_s = self._clock_s() - self._began_s
        moments = self._script.get(index) or self._script.get("*") or ()
        return next((moment for moment in reversed(moments) if moment.from_s <= passed_s), NOTHING)

    def _reading(self, moment: Moment) -> Reading:
        missing = {name: moment.why for name in self.names if name not in moment.values}
        if moment.processes is None:
            missing["processes"] = moment.why
        return Reading(
            values=dict(moment.values), missing=missing, throttled=moment.throttled, processes=moment.processes,
            unwell=moment.unwell,
        )


def read_script(path: Path) -> Script:
    """From JSON: {"0": [{"from_s": 0, "values": {"busy_percent": 90}}, ...], "*": [...]}, by index, in order of time.

    Raises BadScript.
    """
    try:
        document: Any = json.loads(path.read_text())
        return msgspec.convert(document, dict[str, list[Moment]])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise BadScript(f"{path} is no script of fake readings: {error}") from None
