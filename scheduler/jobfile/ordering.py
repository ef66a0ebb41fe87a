"""When and how often: `after`, `begin`, `array` and `time_limit` as people write them."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from scheduler.durations import BadDuration, parse_duration

MAX_TASKS = 10_000
MAX_PARENTS = 1_000
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_SLURM_AFTER = re.compile(r"after(ok|any)((?::[0-9]{1,18})+)")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Waits = tuple[tuple[int, str], ...]


def _after(value: Any) -> Waits:
    """12, [12, 13]: they must complete. {ok: [...], any: [...]}, or Slurm's `afterok:12:13,afterany:14`."""
    if isinstance(value, dict) and set(value) <= {"ok", "any"}:
        found = [(parent, how) for how, parents in value.items() for parent in _ids(parents)]
    elif isinstance(value, str) and not value.isdecimal():
        found = []
        for part in value.split(","):
            match = _SLURM_AFTER.fullmatch(part.strip())
            if match is None:
                raise ValueError("must be ids of jobs, {ok: [...], any: [...]}, or such as afterok:12:13,afterany:14")
            found += [(int(parent), match[1]) for parent in match[2][1:].split(":")]
    else:
        found = [(parent, "ok") for parent in _ids(value)]
    if len(found) > MAX_PARENTS:
        raise ValueError(f"names {len(found)} jobs; the limit is {MAX_PARENTS}")
    return tuple(dict.fromkeys(found))


def _ids(value: Any) -> list[int]:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if type(item) is not int or not 1 <= item < 2**63:
            raise ValueError("must name jobs by their ids, such as 12 or [12, 13]")
    return items


def _array(value: Any) -> tuple[tuple[int, ...], int | None]:
    """Indices, and how many may run at once: `0-9`, `0-9%2`, `1,5,7`, `0-99:10`, or a list of numbers."""
    if isinstance(value, list) and value and all(type(item) is int and 0 <= item < 10**9 for item in value):
        tasks, most = list(value), None
    elif isinstance(value, str):
        text, percent, cap = value.partition("%")
        if percent and (not cap.isdecimal() or not cap.isascii() or not 1 <= int(cap[:9]) < 10**9):
            raise ValueError("after % comes how many tasks may run at once, at least 1")
        tasks, most = _indices(text), int(cap) if percent else None
    else:
        raise ValueError("must be such as 0-9, 0-9%2 or [1, 5, 7]")
    if len(tasks) > MAX_TASKS:
        raise ValueError(f"has {len(tasks)} tasks; the limit is {MAX_TASKS}")
    if len(set(tasks)) != len(tasks):
        raise ValueError("names a task twice")
    return tuple(tasks), most


def _indices(text: str) -> list[int]:
    tasks: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])) or match[3] == "0":
            raise ValueError("must be such as 0-9, 0-9%2 or 1,5,7")
        span = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if len(span) > MAX_TASKS:
            raise ValueError(f"has {len(span)} tasks; the limit is {MAX_TASKS}")
        tasks += span
    return tasks


def _time_limit(value: Any) -> Any:
    """Slurm's six formats, where a bare number is minutes, or units as in 90m and 1d12h."""
    if type(value) is not int and not isinstance(value, str):
        raise ValueError("must be a duration such as 90m, 1d12h, 2-12 or 1:00:00")
    try:
        seconds = parse_duration(str(value), bare="minutes")
    except BadDuration as error:
        raise ValueError(str(error)) from None
    if seconds == 0:
        raise ValueError("must be more than 0; leave it out for no limit")
    return seconds


def begin_us(value: Any) -> Any:
    """Microseconds since the epoch. Raises ValueError for a moment without a zone."""
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        raise ValueError("must be a moment with a zone, such as 2030-01-31T08:00:00Z")
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return round((moment - _EPOCH).total_seconds() * 1e6)


def _not_before_epoch(value: int) -> int:
    if value < 0:
        raise ValueError("is before 1970")
    return value


After = Annotated[Any, BeforeValidator(_after)]
Array = Annotated[Any, BeforeValidator(_array)]
TimeLimit = Annotated[int, BeforeValidator(_time_limit)]
Moment = Annotated[int, BeforeValidator(begin_us), AfterValidator(_not_before_epoch)]
