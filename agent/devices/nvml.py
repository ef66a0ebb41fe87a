"""GPUs as NVML sees them. Each query is guarded once: what cannot be read is None, never 0."""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from scheduler.protocol.messages import DeviceInfo

_T = TypeVar("_T")


def find_gpus() -> tuple[DeviceInfo, ...]:
    """All GPUs in NVML's order, by UUID; empty where there is no NVML or no driver."""
    if _ask(pynvml.nvmlInit) is _NOTHING:
        return ()
    try:
        count = _ask(pynvml.nvmlDeviceGetCount)
        found = [_describe(index) for index in range(count if isinstance(count, int) else 0)]
        return tuple(info for info in found if info is not None)
    finally:
        _ask(pynvml.nvmlShutdown)


_NOTHING = object()


def _ask(query: Callable[..., _T], *arguments: Any) -> _T | object:
    try:
        return query(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return _NOTHING


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _describe(index: int) -> DeviceInfo | None:
    handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    uuid = _text(_ask(pynvml.nvmlDeviceGetUUID, handle)) if handle is not _NOTHING else None
    if uuid is None:
        return None
    name = _text(_ask(pynvml.nvmlDeviceGetName, handle)) or "unknown GPU"
    memory = getattr(_ask(pynvml.nvmlDeviceGetMemoryInfo, handle), "total", None)
    reason = _why_unwell(_ask(pynvml.nvmlDeviceGetRemappedRows, handle))
    return DeviceInfo(
        id=uuid, kind=name.removeprefix("NVIDIA "), index=index, name=name, memory_bytes=memory,
        healthy=not reason, reason=reason,
    )  # fmt: skip


def _why_unwell(remapped: Any) -> str:
    """From NVML's (corrected, uncorrected, pending, failed) of a memory's bad rows; empty where nothing is known."""
    if remapped is _NOTHING:
        return ""
    *_, pending, failed = remapped
    if failed:
        return "a bad row of its memory could not be replaced by a spare one: the GPU has to be exchanged"
    return "a bad row of its memory is replaced only by a reset of the GPU" if pending else ""
