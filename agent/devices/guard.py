"""Every question to NVML goes through one guard: its answer, or why there is none. Never 0 for what is unknown."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import pynvml

_NO_VALUE = {2**64 - 1, 2**32 - 1}


class Scope(Enum):
    """What an error is about: one value, one device, or NVML on the whole node."""

    VALUE = "value"
    DEVICE = "device"
    NODE = "node"


_MEANING: dict[int, tuple[Scope, str]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: (Scope.NODE, "NVML is not initialised"),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (Scope.NODE, "the NVIDIA driver is not loaded: modprobe nvidia, or reboot"),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (Scope.NODE, "there is no libnvidia-ml.so.1: install the NVIDIA driver"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        Scope.NODE, "NVML version mismatch: the driver was upgraded while it was loaded; reboot",
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: (Scope.DEVICE, "the GPU has fallen off the bus: reset it, or reboot"),
    pynvml.NVML_ERROR_RESET_REQUIRED: (Scope.DEVICE, "the GPU must be reset before it can be used"),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (Scope.DEVICE, "NVML no longer finds it"),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: (Scope.DEVICE, "its power cables are not attached properly"),
    pynvml.NVML_ERROR_IRQ_ISSUE: (Scope.DEVICE, "the kernel has an interrupt issue with it"),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (Scope.VALUE, "not supported here"),
    pynvml.NVML_ERROR_NO_PERMISSION: (Scope.VALUE, "no permission to read it"),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (Scope.VALUE, "this driver is too old for it"),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: (Scope.VALUE, "this driver is too old for it"),
}  # fmt: skip


def meaning(code: int) -> tuple[Scope, str]:
    """Of an NVML return code: what it is about, and what to tell."""
    return _MEANING.get(code) or (Scope.VALUE, f"NVML: {pynvml.NVMLError(code)}")


class Guard:
    """Of one look. unwell and trouble: the first error that was about the whole device, or about NVML as a whole; after
    it nothing more is asked."""

    def __init__(self) -> None:
        self.unwell = self.trouble = ""

    def ask(self, query: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
        """(answer, ""), or (None, why there is none)."""
        if self.unwell or self.trouble:
            return None, self.unwell or self.trouble
        try:
            answer = query(*arguments)
        except pynvml.NVMLError as error:
            return None, self.judge(error.value)
        except (UnicodeDecodeError, ValueError) as error:
            return None, f"NVML answered nonsense: {error}"
        return number(answer) if isinstance(answer, int) else (answer, "")

    def judge(self, code: int) -> str:
        """What an error code means; remembered where it is about more than one value."""
        scope, reason = meaning(code)
        if scope is Scope.DEVICE:
            self.unwell = self.unwell or reason
        elif scope is Scope.NODE:
            self.trouble = self.trouble or reason
        return reason


def number(value: int | None) -> tuple[int | None, str]:
    """The value, or None with a reason for what NVML says in place of one: all bits set."""
    return (None, "NVML has no value for it") if value is None or value in _NO_VALUE else (value, "")


def text(value: object) -> str | None:
    """pynvml answers str or bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None
