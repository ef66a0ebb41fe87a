"""Rates from counters that only grow, except when they wrap around or begin again."""

from collections.abc import Mapping

FIRST = "the first sample: there is nothing yet to compare it with"
RESET = "its counter began again"
_32_BITS = 2.0**32

Answer = tuple[dict[str, float], dict[str, str]]


class Rates:
    """Of one device or interface."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._at_s: float | None = None

    def of(self, counters: Mapping[str, float], at_s: float) -> Answer:
        """(per second, by NAME_per_s; reasons for those without). at_s: when the counters were read."""
        passed_s = at_s - self._at_s if self._at_s is not None else 0.0
        before, self._before, self._at_s = self._before, dict(counters), at_s
        rates: dict[str, float] = {}
        missing: dict[str, str] = {}
        for name, now in counters.items():
            grown = growth(before[name], now) if name in before and passed_s > 0 else None
            if grown is not None:
                rates[f"{name}_per_s"] = grown / passed_s
            else:
                missing[f"{name}_per_s"] = RESET if name in before and passed_s > 0 else FIRST
        return rates, missing


def growth(before: float, now: float) -> float | None:
    """None where the counter began again. One of 32 bits that was in its upper half and is in its lower has wrapped."""
    if now >= before:
        return now - before
    if _32_BITS / 2 <= before < _32_BITS and now < _32_BITS / 2:
        return now - before + _32_BITS
    return None
