"""Durations as people write them: Slurm's six formats, and units such as 90m or 1d12h.

Slurm's formats (sbatch, --time): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
days-hours:minutes:seconds. A bare number means minutes there; fields of jctd's own that say so mean seconds.
"""

import re
from typing import Literal

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WITH_UNITS = re.compile(r"(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_NUMBER = re.compile(r"[0-9]+")
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+(?::[0-9]+){0,2})")
MAX_DURATION_S = 10 * 365 * 86_400

FORMATS = "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]], or units as in 90m, 1d12h"


class BadDuration(ValueError):
    """The text is no duration; the message says which forms are."""


def parse_duration(text: str, bare: Literal["minutes", "seconds"]) -> int:
    """Seconds. bare: the unit of a number alone. Raises BadDuration, also above ten years."""
    seconds = _with_units(text)
    if seconds is None:
        seconds = _slurm(text, bare)
    if seconds is None:
        raise BadDuration(f"{text[:40]!r} is no duration; write {FORMATS}")
    if seconds > MAX_DURATION_S:
        raise BadDuration(f"{text[:40]!r} is longer than ten years")
    return seconds


def _with_units(text: str) -> int | None:
    found = _WITH_UNITS.fullmatch(text)
    if not text or found is None:
        return None
    return sum(int(count or 0) * unit for count, unit in zip(found.groups(), _UNITS_S.values(), strict=True))


def _slurm(text: str, bare: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return int(text) * (60 if bare == "minutes" else 1)
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, clock = found.groups()
    parts = [int(part) for part in clock.split(":")]
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        in_range = hours < 24 and minutes < 60 and seconds < 60
    else:
        hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts]
        in_range = seconds < 60 and (len(parts) == 2 or minutes < 60)
    if not in_range:
        raise BadDuration(f"{text[:40]!r} is no duration: only its first part may pass 23 hours, 59 minutes or seconds")
    return int(days or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds


def format_duration(seconds: float) -> str:
    """As Slurm prints it: [days-]hours:minutes:seconds, whole seconds, rounded down."""
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
