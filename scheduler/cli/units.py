"""Sizes, rates and durations as people write them: 80GB, 12GB/s, 10us. Bare numbers are bytes and seconds."""

import re

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([^\s]*)\s*")
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "m": 60.0, "min": 60.0, "h": 3600.0}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BYTES = {
    **{f"{p}b": float(n) for p, n in _PREFIXES.items()},
    **{f"{p}ib": float(2 ** (10 * i)) for i, p in enumerate(_PREFIXES) if p},
    **{p: float(n) for p, n in _PREFIXES.items()},
}


def seconds(text: str) -> float:
    """Raises ValueError with the units that are known."""
    return _parse(text, _SECONDS, "s, ms, us, ns, min, h")


def size_bytes(text: str) -> float:
    """Decimal (GB) and binary (GiB) units. Raises ValueError with the units that are known."""
    return _parse(text, _BYTES, "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB", fold=True)


def bytes_per_s(text: str) -> float:
    """Bytes a second, with or without the /s; Gbit/s divides by 8. Raises ValueError."""
    plain = text.strip().removesuffix("/s")
    bits = re.fullmatch(r"(.*?)([kKMGT]?)bit", plain)
    if bits is not None:
        return size_bytes(f"{bits[1]}{bits[2]}B") / 8
    return size_bytes(plain)


def _parse(text: str, units: dict[str, float], known: str, fold: bool = False) -> float:
    found = _NUMBER.fullmatch(text)
    unit = (found[2].lower() if fold else found[2]) if found else None
    if found is None or unit not in units:
        raise ValueError(f"{text[:40]!r} is not understood; write a number with one of {known}")
    return float(found[1]) * units[unit]


def show_seconds(value: float) -> str:
    """Three significant digits in the unit that suits: 12.3 ms."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale or (unit == "µs" and value):
            return f"{value / scale:.3g} {unit}" if abs(value) < 1000 * scale else f"{value / scale:,.0f} {unit}"
    return "0 s"


def show_bytes(value: float) -> str:
    """Decimal units with three significant digits: 1.25 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"
