"""What a node measures comes from drivers, and from whoever holds its key: a value that cannot be true is null, with
its reason, as one that is missing; a count that cannot be null is the nearest that can be. The rest of the beat stands.

A not-a-number would otherwise be no JSON, and every sum with it none either.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from scheduler.protocol.plausible import LONGEST_S, MOST, is_count
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Process, Telemetry

IMPOSSIBLE = "impossible value"
MOST_PERCENT = 110.0
"""A little more than all: time that was spent and time that passed are read one after the other."""

_RANGES: tuple[tuple[str, float, float], ...] = (
    ("_per_s", 0.0, MOST), ("_percent", 0.0, MOST_PERCENT), ("_w", 0.0, 1e6), ("_hz", 0.0, 1e12), ("_c", -273.15, 1e3),
    ("_s", 0.0, LONGEST_S),
)  # fmt: skip
"""By the end of the name, the first that fits; anything else is a count or bytes."""


def plausible_telemetry(telemetry: Telemetry) -> Telemetry:
    """The same sample, without what cannot be true."""
    wrong = _impossible(telemetry.host)
    return replace(
        telemetry, host=telemetry.host | dict.fromkeys(wrong), missing=telemetry.missing | _reasons(wrong),
        devices=tuple(map(_device, telemetry.devices)), interfaces=tuple(map(_interface, telemetry.interfaces)),
        number=_nearest(telemetry.number), late=_nearest(telemetry.late), left_out=_nearest(telemetry.left_out),
    )  # fmt: skip


def is_possible(name: str, value: float) -> bool:
    """By the unit in which the name ends. A not-a-number compares false with all."""
    least, most = _range(name)
    return least <= value <= most


@lru_cache(maxsize=1_000)
def _range(name: str) -> tuple[float, float]:
    return next(((least, most) for end, least, most in _RANGES if name.endswith(end)), (0.0, MOST))


def _impossible(values: Mapping[str, float | None]) -> list[str]:
    return [name for name, value in values.items() if value is not None and not is_possible(name, value)]


def _reasons(names: list[str]) -> dict[str, str]:
    return dict.fromkeys(names, IMPOSSIBLE)


def _device(sample: DeviceSample) -> DeviceSample:
    wrong = _impossible(sample.values)
    no_age = sample.age_s is not None and not is_possible("age_s", sample.age_s)
    no_slowdown = sample.slowdown is not None and not _is_slowdown(sample.slowdown)
    lost = ["age_s"] * no_age + ["slowdown"] * no_slowdown
    return replace(
        sample, values=sample.values | dict.fromkeys(wrong), missing=sample.missing | _reasons([*wrong, *lost]),
        age_s=None if no_age else sample.age_s, slowdown=None if no_slowdown else sample.slowdown,
        processes=tuple(map(_process, sample.processes)) if sample.processes is not None else None,
    )  # fmt: skip


def _interface(sample: InterfaceSample) -> InterfaceSample:
    wrong = _impossible(sample.values)
    return replace(
        sample, values=sample.values | dict.fromkeys(wrong), missing=sample.missing | _reasons(wrong)
    )  # fmt: skip


def _process(process: Process) -> Process:
    memory = process.memory_bytes if is_count(process.memory_bytes) else None
    job = process.job if is_count(process.job) else None
    return replace(process, pid=_nearest(process.pid), job=job, memory_bytes=memory)


def _nearest(count: int) -> int:
    return max(0, min(count, MOST))


def _is_slowdown(slowdown: Slowdown) -> bool:
    """Its bounds need not hold its ratio: both sway by themselves."""
    stage = [number for number in (slowdown.stage_ratio, slowdown.stage_low) if number is not None]
    numbers = (slowdown.ratio, slowdown.low, slowdown.high, *stage)
    return all(0 < number <= MOST for number in numbers) and 0 <= slowdown.confidence <= 1
