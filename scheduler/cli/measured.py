"""What devices and nodes measure, as cells of a table. Unknown is a dash, and the note says why."""

import textwrap
from collections.abc import Mapping
from typing import Any

from scheduler.cli.grid import Grid, width_of
from scheduler.cli.table import Column, short_duration

Device = dict[str, Any]
STALE_S = 15.0
GIB = 2.0**30
_SHOWN = {"busy_percent": "util", "memory_used_bytes": "memory", "power_w": "power", "temperature_c": "temp"}


def value(item: Device, name: str) -> float | None:
    measured = item["measured"]
    return measured["values"].get(name) if measured is not None else None


def percent(item: Device, name: str) -> str:
    found = value(item, name)
    return f"{found:.0f}%" if found is not None else "-"


def number(item: Device, name: str, unit: str, scale: float = 1.0) -> str:
    found = value(item, name)
    return f"{found / scale:.0f}{unit}" if found is not None else "-"


def memory(item: Device) -> str:
    """In use and in all, GiB."""
    used, total = value(item, "memory_used_bytes"), value(item, "memory_total_bytes") or item.get("memory_bytes")
    if used is None and total is None:
        return "-"
    return f"{f'{used / GIB:.0f}' if used is not None else '-'}/{f'{total / GIB:.0f}G' if total is not None else '-'}"


def rate(item: Mapping[str, Any], *names: str) -> str:
    """The sum of those that are known, a second."""
    found = [item["values"][name] for name in names if item["values"].get(name) is not None]
    if not found:
        return "-"
    amount, units = float(sum(found)), iter(("B/s", "kB/s", "MB/s", "GB/s", "TB/s"))
    unit = next(units)
    while amount >= 999.5 and (larger := next(units, None)) is not None:
        amount, unit = amount / 1000, larger
    return f"{amount:.0f}{unit}" if unit == "B/s" or amount >= 9.95 else f"{amount:.1f}{unit}"


def note(device: Device, shown: Mapping[str, str] = _SHOWN) -> str:
    """Why it is as it is: its state's reason, its drain, what neighbours cost, strangers on it, what slows it, what is
    unknown and why."""
    drain, measured = device["drain"], device["measured"]
    parts = [device["reason"]] if device["reason"] else []
    parts += [f"drained by {drain['by']}: {drain['reason']}"] if drain is not None else []
    if measured is None:
        return "; ".join([*parts, "not measured yet"])
    parts += [contest] if (contest := contested(measured["slowdown"])) else []
    parts += strangers(measured["processes"] or ())
    slowed = [one for one in measured["throttled"] or () if one != "idle"]
    parts += [f"throttled: {', '.join(slowed)}"] if slowed else []
    if (measured["age_s"] or 0) > STALE_S:
        parts.append(f"measured {short_duration(measured['age_s'])} ago")
    return "; ".join([*parts, *unknown(measured, shown)])


def slowdown(device: Device) -> str:
    """How many times as long a step takes, as far as is known."""
    found = device["measured"]["slowdown"] if device["measured"] is not None else None
    return f"{found['ratio']:.2f}x" if found is not None else "-"


def contested(slowdown: Mapping[str, Any] | None) -> str:
    """Empty where nobody costs the device much."""
    if slowdown is None or not slowdown["contested"]:
        return ""
    how = "by its counters" if slowdown["source"] == "forest" else "by step times"
    return f"slowed {slowdown['ratio']:.2f}x by a neighbour, {how}"


def strangers(processes: Any) -> list[str]:
    """Processes that belong to no job of ours."""
    found = []
    for whose, text in (("other", "not ours"), ("unknown", "unknown whose")):
        these = [one for one in processes if one["whose"] == whose]
        if these:
            names = ", ".join(f"{one['name'] or 'pid'} {one['pid']}" for one in these[:2])
            found.append(f"{text}: {names}{f' and {len(these) - 2} more' if len(these) > 2 else ''}")
    return found


def unknown(measured: Mapping[str, Any], shown: Mapping[str, str]) -> list[str]:
    """Of the columns that are shown, which are unknown and why; without their names where that is true of all."""
    reasons: dict[str, list[str]] = {}
    for name, title in shown.items():
        if measured["values"].get(name) is None and (why := measured["missing"].get(name)):
            reasons.setdefault(why, []).append(title)
    if len(reasons) == 1 and len(next(iter(reasons.values()))) == len(shown):
        return list(reasons)
    return [f"{', '.join(titles)}: {why}" for why, titles in reasons.items()]


def footnotes(grid: Grid, place: int, width: int | None) -> list[str]:
    """What the last column had no room for, with the places (a column's number) that it is about."""
    places: dict[str, list[str]] = {}
    for row in grid.rows:
        if width_of(row[-1][0]) > grid.widths[-1]:
            places.setdefault(row[-1][0], []).append(row[place][0])
    lines = (f"{', '.join(where)}: {text}" for text, where in places.items())
    return [part for line in lines for part in textwrap.wrap(line, width or 80, subsequent_indent="  ")]


PLACE = Column("GPU", lambda device, _: f"{device['node']}/{device['index']}", least=6)
KIND = Column("KIND", lambda device, _: device["kind"], least=4, keep=2)
UTIL = Column("UTIL", lambda device, _: percent(device, "busy_percent"), right=True)
MEMORY = Column("MEMORY", lambda device, _: memory(device), right=True)
POWER = Column("POWER", lambda device, _: number(device, "power_w", "W"), right=True)
TEMPERATURE = Column("TEMP", lambda device, _: number(device, "temperature_c", "C"), right=True)
SLOWDOWN = Column("SLOWED", lambda device, _: slowdown(device), right=True, keep=2)
NOTE = Column("NOTE", lambda device, _: note(device), least=16)
