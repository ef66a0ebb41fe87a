"""What nodes and their devices measure, as it looks from outside."""

from collections.abc import Collection

from scheduler.api.shapes import DeviceMeasured, InterfaceView, NodeMeasured, ProcessView, SlowdownView
from scheduler.api.times import seconds
from scheduler.core.state import Sensed
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.telemetry import DeviceSample, Process


def device_measured(
    sensed: tuple[Sensed, DeviceSample] | None, now_us: int, seen: Collection[int], whole: bool
) -> DeviceMeasured | None:
    """seen: jobs that may be named. whole: whether processes of nobody's job may be named as well."""
    if sensed is None:
        return None
    known, sample = sensed
    return DeviceMeasured(
        age_s=sample.age_s + seconds(now_us - known.at_us) if sample.age_s is not None else None,
        bus=sample.bus,
        parent=sample.parent,
        values=dict(sample.values),
        missing=dict(sample.missing),
        throttled=list(sample.throttled) if sample.throttled is not None else None,
        processes=_processes(sample, seen, whole),
        slowdown=_slowdown(sample.slowdown),
    )


def _slowdown(found: Slowdown | None) -> SlowdownView | None:
    if found is None:
        return None
    return SlowdownView(
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        source=found.source.value,
        contested=found.contested,
    )


def _processes(sample: DeviceSample, seen: Collection[int], whole: bool) -> list[ProcessView] | None:
    if sample.processes is None:
        return None
    return [_process(process, whole or process.job in seen) for process in sample.processes]


def _process(process: Process, named: bool) -> ProcessView:
    return ProcessView(
        pid=process.pid,
        whose=process.whose,
        job=process.job if named else None,
        name=process.name if named else "",
        memory_bytes=process.memory_bytes,
    )


def node_measured(sensed: Sensed | None, now_us: int) -> NodeMeasured | None:
    if sensed is None:
        return None
    telemetry = sensed.telemetry
    return NodeMeasured(
        age_s=seconds(now_us - sensed.at_us),
        number=telemetry.number,
        late=telemetry.late,
        left_out=telemetry.left_out,
        values=dict(telemetry.host),
        missing=dict(telemetry.missing),
        interfaces=[
            InterfaceView(name=one.name, kind=one.kind, up=one.up, values=dict(one.values), missing=dict(one.missing))
            for one in telemetry.interfaces
        ],
    )
