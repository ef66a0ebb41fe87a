"""One look at one GPU: every value that NVML gives, each asked for once, and for each that it does not the reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml
from msgspec.structs import replace

from agent.devices.gpm import GPM_NAMES, Gpm
from agent.devices.guard import Guard, number
from agent.devices.provider import Reading
from scheduler.protocol.telemetry import Process

Owner = Callable[[int, int | None], Process]

_VOLATILE = pynvml.NVML_VOLATILE_ECC
_CORRECTED, _UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_KB, _KIB = 1e3, 1024.0

_VALUES: tuple[tuple[str, str, tuple[Any, ...], float], ...] = (
    ("power_w", "nvmlDeviceGetPowerUsage", (), 1e-3),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    ("temperature_c", "nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), 1.0),
    ("sm_clock_hz", "nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,), 1e6),
    ("memory_clock_hz", "nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), 1e6),
    ("ecc_corrected", "nvmlDeviceGetTotalEccErrors", (_CORRECTED, _VOLATILE), 1.0),
    ("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE), 1.0),
)
_STRUCTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("nvmlDeviceGetUtilizationRates", {"busy_percent": "gpu", "memory_busy_percent": "memory"}),
    ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes": "used", "memory_total_bytes": "total"}),
)
_PCIE = {
    "pcie_tx_bytes_per_s": pynvml.NVML_PCIE_UTIL_TX_BYTES,
    "pcie_rx_bytes_per_s": pynvml.NVML_PCIE_UTIL_RX_BYTES,
}
_ALL_LINKS = 2**32 - 1
_FIELDS = {
    "memory_temperature_c": (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0),
    "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}
_THROTTLES = {
    pynvml.nvmlClocksEventReasonGpuIdle: "idle",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "clock setting",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "software thermal slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display clock setting",
}
NAMES = tuple(dict.fromkeys((
    *(name for _, fields in _STRUCTS for name in fields), *(name for name, *_ in _VALUES), *GPM_NAMES,
    "pcie_replays_per_s", "memory_temperature_c", "xid",
)))  # fmt: skip


@dataclass(slots=True)
class Handle:
    """A device as NVML names it, with what is remembered from look to look. parent: of a MIG device its GPU's id;
    instance: its GPU instance there. xid: the last that was seen. events: where NVML reports them, once it listens."""

    device: Any
    bus: str = ""
    parent: str = ""
    parent_device: Any = None
    instance: int | None = None
    gpm: Gpm | None = None
    events: Any = None
    listens: bool = False
    xid: int | None = None


def read(handle: Handle, owner: Owner) -> Reading:
    """Blocks for as long as the driver does."""
    reading, guard = Reading(bus=handle.bus, parent=handle.parent), Guard()
    for name, query, arguments, scale in _VALUES:
        value, why = guard.ask(getattr(pynvml, query), handle.device, *arguments)
        _put(reading.values, reading, name, value, why, scale)
    for query, fields in _STRUCTS:
        answer, why = guard.ask(getattr(pynvml, query), handle.device)
        for name, field in fields.items():
            value, none = number(getattr(answer, field)) if answer is not None else (None, why)
            _put(reading.values, reading, name, value, none)
    replays, why = guard.ask(pynvml.nvmlDeviceGetPcieReplayCounter, handle.device)
    _put(reading.counters, reading, "pcie_replays", replays, why)
    _read_fields(handle, guard, reading)
    _read_gpm(handle, guard, reading)
    _read_pcie(handle, guard, reading)
    _read_throttles(handle, guard, reading)
    _read_xid(handle, guard, reading)
    _read_processes(handle, guard, reading, owner)
    reading.unwell = guard.unwell or guard.trouble
    return reading


def _put(
    into: dict[str, float], reading: Reading, name: str, value: float | None, why: str, scale: float = 1.0
) -> None:
    if value is None:
        reading.missing[name if into is reading.values else f"{name}_per_s"] = why
    else:
        into[name] = value * scale


def _read_fields(handle: Handle, guard: Guard, reading: Reading) -> None:
    """Values that have a number in place of a function; each has an error code of its own."""
    answers, why = guard.ask(pynvml.nvmlDeviceGetFieldValues, handle.device, list(_FIELDS.values()))
    for at, name in enumerate(_FIELDS):
        value, none = _field(guard, answers[at]) if answers is not None else (None, why)
        counts = name.startswith("nvlink")
        _put(reading.counters if counts else reading.values, reading, name, value, none, _KIB if counts else 1.0)


def _field(guard: Guard, answer: Any) -> tuple[float | None, str]:
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, guard.judge(answer.nvmlReturn)
    names = {
        pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal", pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal", pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    }  # fmt: skip
    value = getattr(answer.value, names.get(answer.valueType, "ullVal"))
    return number(value) if isinstance(value, int) else (value, "")


def _read_gpm(handle: Handle, guard: Guard, reading: Reading) -> None:
    if handle.gpm is None:
        handle.gpm = Gpm(handle.device, handle.parent_device, handle.instance)
    found, missing = handle.gpm.read(guard)
    for name in GPM_NAMES:
        if name in found:
            reading.values[name] = found[name]
            reading.missing.pop(name, None)
            reading.counters.pop(name.removesuffix("_per_s"), None)
        elif not name.startswith(("pcie", "nvlink")):  # those have another source
            reading.missing[name] = missing[name]


def _read_pcie(handle: Handle, guard: Guard, reading: Reading) -> None:
    """Where GPM has not told: NVML then measures for some 20 ms."""
    for name, counter in _PCIE.items():
        if name not in reading.values:
            value, why = guard.ask(pynvml.nvmlDeviceGetPcieThroughput, handle.device, counter)
            _put(reading.values, reading, name, value, why, _KB)


def _read_throttles(handle: Handle, guard: Guard, reading: Reading) -> None:
    bits, why = guard.ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle.device)
    if bits is None:
        reading.missing["throttled"] = why
    else:
        reading.throttled = tuple(name for bit, name in _THROTTLES.items() if bits & bit)


def _read_xid(handle: Handle, guard: Guard, reading: Reading) -> None:
    """NVML only tells of new ones."""
    why = "" if handle.listens else _listen(handle, guard)
    while not why:
        event, _ = guard.ask(pynvml.nvmlEventSetWait_v2, handle.events, 0)
        if event is None:
            break
        handle.xid = event.eventData
    none = why or guard.unwell or guard.trouble or "none since the agent's start"
    _put(reading.values, reading, "xid", handle.xid, none)


def _listen(handle: Handle, guard: Guard) -> str:
    """Says why not; the next look tries again."""
    why = ""
    if handle.events is None:
        handle.events, why = guard.ask(pynvml.nvmlEventSetCreate)
    if not why:
        _, why = guard.ask(
            pynvml.nvmlDeviceRegisterEvents, handle.device, pynvml.nvmlEventTypeXidCriticalError, handle.events
        )
        handle.listens = not why
    return why


def _read_processes(handle: Handle, guard: Guard, reading: Reading, owner: Owner) -> None:
    computing, why = guard.ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle.device)
    drawing, _ = guard.ask(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle.device)
    if computing is None:
        reading.missing["processes"] = why
        return
    found = {process.pid: process for process in (*(drawing or ()), *computing)}
    computes = {process.pid for process in computing}
    reading.processes = tuple(
        replace(owner(pid, process.usedGpuMemory), draws=pid not in computes) for pid, process in found.items()
    )
