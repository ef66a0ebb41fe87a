"""Microseconds to what leaves the daemon: UTC in RFC 3339, seconds as numbers. Unknown stays null."""

from datetime import UTC, datetime, timedelta
from typing import overload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def rfc3339(moment_us: int) -> str: ...
@overload
def rfc3339(moment_us: None) -> None: ...
def rfc3339(moment_us: int | None) -> str | None:
    if moment_us is None:
        return None
    return (_EPOCH + timedelta(microseconds=moment_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds(duration_us: int) -> float:
    return duration_us / 1e6
