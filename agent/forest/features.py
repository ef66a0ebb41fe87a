"""The 32 features of each device, from samples as they come. Which of them a provider fills: docs/interference.md."""

import os
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.telemetry.members import NOBODY, OwnUse
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Telemetry

WINDOW_S = 3.0
MOST_RATIO = 100.0
Values = dict[str, float | None]
Gang = tuple[int, int]


@dataclass(slots=True)
class _Past:
    """(moment, busy percent, wait percent) of the last WINDOW_S."""

    looks: deque[tuple[float, float | None, float | None]] = field(default_factory=deque)


class Features:
    """Remembers a few seconds of each device, for moving averages and trends."""

    def __init__(self, cores: int | None = None) -> None:
        """cores: of this machine."""
        self._cores = cores or os.cpu_count() or 1
        self._past: dict[str, _Past] = defaultdict(_Past)

    def of(
        self, telemetry: Telemetry, now_s: float, own: Mapping[str, OwnUse | None], gangs: Mapping[str, Gang]
    ) -> dict[str, Values]:
        """By device. own: what our members on it use, of the devices that have one; gangs: which gang that is of."""
        around = _host(telemetry, self._cores) | _network(telemetry)
        crowded = self._crowded(telemetry, own, gangs)
        own = {**own, **{id: use for id, (use, _) in crowded.items()}}
        uneven = _unevenness(own, gangs)
        found = {}
        for device in telemetry.devices:
            use = own.get(device.id, NOBODY) if device.id in gangs else NOBODY
            values = _device(device) | around | _own(use)
            values["stage_busy_cv"] = uneven.get(gangs[device.id]) if device.id in gangs else 0.0
            foreign = crowded[device.id][1] if device.id in crowded else _foreign(device, values["busy_percent"], use)
            values["foreign_busy_percent"] = foreign
            found[device.id] = values | self._moving(device.id, values, now_s)
        self._forget(found)
        return found

    def _crowded(
        self, telemetry: Telemetry, own: Mapping[str, OwnUse | None], gangs: Mapping[str, Gang]
    ) -> dict[str, tuple[OwnUse, float]]:
        """Members on more CPU slots than there are cores wait for each other, and a gang is no neighbour to itself. By
        device: its use, with that part of its waiting which others had than its gang; and what others use of a core."""
        slots = [device.id for device in telemetry.devices if device.kind == "cpu" and device.id in gangs]
        busy = telemetry.host.get("busy_percent")
        if len(slots) <= self._cores or busy is None:
            return {}
        members = {id: use for id in slots if (use := own.get(id)) is not None}
        of_gang: dict[Gang, float] = defaultdict(float)
        for id, use in members.items():
            of_gang[gangs[id]] += use.busy_percent
        found = {}
        for id, use in members.items():
            others = max(0.0, busy * self._cores - of_gang[gangs[id]])
            found[id] = _beside(use, others, of_gang[gangs[id]] - use.busy_percent), others / self._cores
        return found

    def _moving(self, id: str, values: Values, now_s: float) -> Values:
        looks = self._past[id].looks
        looks.append((now_s, values["busy_percent"], values["own_wait_percent"]))
        while looks[0][0] < now_s - WINDOW_S:
            looks.popleft()
        busy = [(at_s, value) for at_s, value, _ in looks if value is not None]
        waits = [value for *_, value in looks if value is not None]
        return {
            "busy_mean_percent": statistics.fmean(value for _, value in busy) if busy else None,
            "own_wait_mean_percent": statistics.fmean(waits) if waits else None,
            "busy_trend_percent_per_s": slope(busy),
        }

    def _forget(self, present: Iterable[str]) -> None:
        for id in self._past.keys() - set(present):
            del self._past[id]


def _beside(use: OwnUse, others_percent: float, gang_percent: float) -> OwnUse:
    """Of the time that it waited, what the gang's other members had is taken out."""
    part = others_percent / (others_percent + gang_percent) if others_percent + gang_percent > 0 else 0.0
    waited = use.wait_percent * part
    return replace(use, wait_percent=100 * waited / (100 - use.wait_percent + waited) if waited > 0 else 0.0)


def slope(points: list[tuple[float, float]]) -> float | None:
    """Of the least-squares line; None below two moments."""
    if len({at for at, _ in points}) < 2:
        return None
    return statistics.linear_regression([at for at, _ in points], [value for _, value in points]).slope


def _device(device: DeviceSample) -> Values:
    value = device.values.get
    strangers = [process for process in device.processes or () if process.whose != "job"]
    held_back = [reason for reason in device.throttled or () if reason != "idle"]
    return {
        **{name: value(name) for name in _AS_MEASURED},
        "memory_used_share": share(value("memory_used_bytes"), value("memory_total_bytes")),
        "power_share": share(value("power_w"), value("power_limit_w")),
        "throttle_reasons": float(len(held_back)) if device.throttled is not None else None,
        "pcie_bytes_per_s": total(value("pcie_tx_bytes_per_s"), value("pcie_rx_bytes_per_s")),
        "nvlink_bytes_per_s": total(value("nvlink_tx_bytes_per_s"), value("nvlink_rx_bytes_per_s")),
        "foreign_processes": float(len(strangers)) if device.processes is not None else None,
    }


_AS_MEASURED = (
    "busy_percent", "memory_busy_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent",
    "dram_active_percent", "sm_clock_hz", "steal_percent",
)  # fmt: skip


def _host(telemetry: Telemetry, cores: int) -> Values:
    value = telemetry.host.get
    names = ("cpu_pressure_percent", "memory_pressure_percent", "page_faults_per_s")
    return {
        "load_per_core": share(value("load_1m"), float(cores)),
        "host_busy_percent": value("busy_percent"),
        "host_memory_used_share": share(value("memory_used_bytes"), value("memory_total_bytes")),
        **{name: value(name) for name in names},
    }


def _network(telemetry: Telemetry) -> Values:
    value = telemetry.host.get
    return {
        "loopback_bytes_per_s": _traffic(one for one in telemetry.interfaces if one.kind == "loopback"),
        "network_bytes_per_s": _traffic(one for one in telemetry.interfaces if one.kind == "physical"),
        "tcp_retransmit_share": share(value("tcp_retransmits_per_s"), value("tcp_segments_per_s"), idle=0.0),
    }


def _traffic(interfaces: Iterable[InterfaceSample]) -> float | None:
    """Both ways, of those that are known."""
    found = [one.values.get(name) for one in interfaces for name in ("rx_bytes_per_s", "tx_bytes_per_s")]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _own(use: OwnUse | None) -> Values:
    """compute_communication_ratio: the time in which a member computes (or would, if it were let) over the time in
    which it waits for its neighbours' messages."""
    if use is None:
        names = ("own_busy_percent", "own_wait_percent", "own_timeslices_per_s", "compute_communication_ratio")
        return dict.fromkeys(names)
    wanted = use.busy_percent / max(1e-9, 1 - use.wait_percent / 100)
    return {
        "own_busy_percent": use.busy_percent,
        "own_wait_percent": use.wait_percent,
        "own_timeslices_per_s": use.timeslices_per_s,
        "compute_communication_ratio": min(MOST_RATIO, wanted / max(1.0, 100 - wanted)),
    }


def _foreign(device: DeviceSample, busy: float | None, use: OwnUse | None) -> float | None:
    """What others use of a core. Of a GPU the part of each process is not known: all of it where none of ours is on."""
    if busy is None or use is None:
        return None
    if device.kind == "cpu":
        return max(0.0, busy - use.busy_percent)
    return busy if use is NOBODY else None


def _unevenness(own: Mapping[str, OwnUse | None], gangs: Mapping[str, Gang]) -> dict[Gang, float]:
    """Of each gang with several members here: the variation of how busy its stages are, deviation over mean."""
    busy: dict[Gang, list[float]] = defaultdict(list)
    for device, gang in gangs.items():
        if (use := own.get(device)) is not None:
            busy[gang].append(use.busy_percent)
    return {
        gang: statistics.pstdev(values) / mean if (mean := statistics.fmean(values)) > 0 else 0.0
        for gang, values in busy.items()
    }


def share(part: float | None, whole: float | None, idle: float | None = None) -> float | None:
    """idle: what stands for a part of nothing."""
    if part is None or whole is None:
        return None
    return part / whole if whole > 0 else idle


def total(*parts: float | None) -> float | None:
    """Of those that are known; None where none is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
