"""GPUs and MIG devices as NVML finds them, by UUID: never by an index, which changes when another GPU falls out."""

import ctypes
import threading
from collections.abc import Callable, Iterable
from functools import partial

import pynvml
from msgspec.structs import replace

from agent.devices.guard import Guard, meaning, text
from agent.devices.nvml_reading import NAMES, Handle, read
from agent.devices.provider import Found, Reading
from agent.watched import Watched
from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.telemetry import Process

FIND_S = 2.0
_ABSENT = [meaning(code)[1] for code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)]
_NO_MIG = [
    meaning(code)[1]
    for code in (
        pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
]  # fmt: skip
Offer = tuple[DeviceInfo, Handle]


def no_owner(pid: int, memory_bytes: int | None) -> Process:
    return Process(pid=pid, whose="unknown", memory_bytes=memory_bytes)


class Nvml:
    """The provider of real GPUs. It outlives every failure of NVML and begins anew when that is over."""

    names, blocks = NAMES, True

    def __init__(self, owner: Callable[[int, int | None], Process] = no_owner) -> None:
        """owner: a process from its pid and the memory that it uses, in bytes."""
        self._owner = owner
        self._ready = False
        self._trouble = ""
        self._handles: dict[str, Handle] = {}
        self._looks: dict[int, Watched[tuple[Offer, ...]]] = {}
        self._finding = threading.Lock()

    def find(self) -> Found:
        """All GPUs; in place of one in MIG mode its MIG devices. One that hangs does not hide the others."""
        with self._finding:
            found = self._find()
            self._trouble = found.trouble
            return found

    def read(self, id: str) -> Reading:
        handle = self._handles.get(id)
        if self._trouble or handle is None:
            return Reading(unwell=self._trouble or "NVML no longer finds it")
        return read(handle, self._owner)

    def _find(self) -> Found:
        guard = Guard()
        if not self._ready:
            _, why = guard.ask(pynvml.nvmlInit)
            if why:
                return Found(trouble=why, here=why not in _ABSENT)
            self._ready, self._handles = True, {}
        count, why = guard.ask(pynvml.nvmlDeviceGetCount)
        if why:
            self._begin_anew()
            return Found(trouble=why)
        offers = self._look_at(range(count))
        self._handles |= {info.id: self._known(info.id, handle) for info, handle in offers}
        return Found(tuple(replace(info, index=index) for index, (info, _) in enumerate(offers)))

    def _begin_anew(self) -> None:
        Guard().ask(pynvml.nvmlShutdown)
        self._ready = False

    def _look_at(self, indices: Iterable[int]) -> list[Offer]:
        """Each on a thread of its own."""
        looks = [self._looks.setdefault(at, Watched(partial(_describe, at), f"find-{at}")) for at in indices]
        begun = [look for look in looks if look.ask()]
        return [offer for look in begun if look.wait(FIND_S) for offer in look.newest or ()]

    def _known(self, id: str, handle: Handle) -> Handle:
        """The old one while it means the same device: it remembers earlier samples."""
        old = self._handles.get(id)
        if old is None or _address(old.device) != _address(handle.device):
            return handle
        return old if handle.instance in (None, old.instance) else handle


def _address(device: object) -> int | None:
    return ctypes.cast(device, ctypes.c_void_p).value  # type: ignore[arg-type]


def _describe(index: int) -> tuple[Offer, ...]:
    """The GPU of an index, or its MIG devices; nothing where it cannot even say its UUID."""
    guard = Guard()
    device, _ = guard.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    offer = _offer(guard, device, index)
    if offer is None:
        return ()
    mode, why = guard.ask(pynvml.nvmlDeviceGetMigMode, device)
    if why and why not in _NO_MIG and not guard.unwell:  # next time: as a whole it would be given away once more
        return ()
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return (offer,)
    return tuple(_mig_devices(guard, offer))


def _mig_devices(guard: Guard, parent: Offer) -> Iterable[Offer]:
    gpu, handle = parent
    most, _ = guard.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle.device)
    for index in range(most or 0):
        device, _ = guard.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle.device, index)
        offer = _offer(guard, device, index)
        if offer is not None:
            offer[1].parent, offer[1].parent_device, offer[1].bus = gpu.id, handle.device, handle.bus
            offer[1].instance, _ = guard.ask(pynvml.nvmlDeviceGetGpuInstanceId, device)
            yield offer


def _offer(guard: Guard, device: object, index: int) -> Offer | None:
    uuid = text(guard.ask(pynvml.nvmlDeviceGetUUID, device)[0]) if device is not None else None
    if uuid is None:
        return None
    name = text(guard.ask(pynvml.nvmlDeviceGetName, device)[0]) or "unknown GPU"
    memory = getattr(guard.ask(pynvml.nvmlDeviceGetMemoryInfo, device)[0], "total", None)
    bus = text(getattr(guard.ask(pynvml.nvmlDeviceGetPciInfo_v3, device)[0], "busId", None)) or ""
    reason = why_unwell(guard.ask(pynvml.nvmlDeviceGetRemappedRows, device)[0]) or guard.unwell
    info = DeviceInfo(
        id=uuid, kind=name.removeprefix("NVIDIA "), index=index, name=name, memory_bytes=memory or None,
        healthy=not reason, reason=reason,
    )  # fmt: skip
    return info, Handle(device=device, bus=bus)


def why_unwell(remapped: tuple[int, int, int, int] | None) -> str:
    """From NVML's (corrected, uncorrected, pending, failed) of a memory's bad rows; empty where nothing is known."""
    if remapped is None:
        return ""
    *_, pending, failed = remapped
    if failed:
        return "a bad row of its memory could not be replaced by a spare one: the GPU has to be exchanged"
    return "a bad row of its memory is replaced only by a reset of the GPU" if pending else ""
