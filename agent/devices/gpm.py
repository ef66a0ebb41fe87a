"""GPU Performance Monitoring: what the units of a GPU did between two samples. From Hopper on, and on few others."""

from typing import Any

import pynvml

from agent.devices.guard import Guard

_MIB = 2.0**20
_METRICS: dict[str, tuple[int, float]] = {
    "sm_active_percent": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1.0),
    "sm_occupancy_percent": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1.0),
    "tensor_active_percent": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1.0),
    "dram_active_percent": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1.0),
    "pcie_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
    "pcie_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
    "nvlink_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _MIB),
    "nvlink_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, _MIB),
}
GPM_NAMES = tuple(_METRICS)

Answer = tuple[dict[str, float], dict[str, str]]


class Gpm:
    """Of one device; the last sample is kept for the next look."""

    def __init__(self, device: Any, parent: Any, instance: int | None) -> None:
        """parent, instance: of a MIG device its GPU and its GPU instance there."""
        self._device, self._parent, self._instance = device, parent, instance
        self._samples: list[Any] = []
        self._filled = False
        self._never = ""

    def read(self, guard: Guard) -> Answer:
        """(values by name, reasons by name for the others)."""
        why = self._never or self._allocate(guard) or self._sample(guard)
        if why:
            return {}, dict.fromkeys(_METRICS, why)
        return self._compare(guard)

    def _allocate(self, guard: Guard) -> str:
        """Once: two samples, where the device has GPM at all."""
        if self._samples:
            return ""
        support, why = guard.ask(pynvml.nvmlGpmQueryDeviceSupport, self._parent or self._device)
        if not why and not support.isSupportedDevice:
            why = self._never = "this GPU has no performance monitoring"
        if why:
            return str(why)
        both = [guard.ask(pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
        if (why := both[0][1] or both[1][1]) == "":
            self._samples = [sample for sample, _ in both]
        return why

    def _sample(self, guard: Guard) -> str:
        """Into the older of the two; says why there is nothing to compare yet."""
        self._samples.reverse()
        newest = self._samples[1]
        if self._parent is None:
            _, why = guard.ask(pynvml.nvmlGpmSampleGet, self._device, newest)
        elif self._instance is None:
            why = "NVML does not tell its GPU instance"
        else:
            _, why = guard.ask(pynvml.nvmlGpmMigSampleGet, self._parent, self._instance, newest)
        first, self._filled = not self._filled, not why
        return why or ("the first sample: there is nothing yet to compare it with" if first else "")

    def _compare(self, guard: Guard) -> Answer:
        wanted = pynvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        wanted.sample1, wanted.sample2 = self._samples
        for at, (number, _) in enumerate(_METRICS.values()):
            wanted.metrics[at].metricId = number
        _, why = guard.ask(pynvml.nvmlGpmMetricsGet, wanted)
        if why:
            return {}, dict.fromkeys(_METRICS, why)
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        for at, (name, (_, scale)) in enumerate(_METRICS.items()):
            answer = wanted.metrics[at]
            if answer.nvmlReturn != pynvml.NVML_SUCCESS:
                missing[name] = guard.judge(answer.nvmlReturn)
            elif answer.value != answer.value:
                missing[name] = "NVML answered not a number"
            else:
                values[name] = answer.value * scale
        return values, missing
