"""A chart in the Chrome trace format: open it in chrome://tracing or Perfetto."""

from typing import Any

from scheduler.picture.chart import CAUSES, KINDS, Chart


def trace(chart: Chart) -> dict[str, Any]:
    """Complete events in microseconds: one process, one thread a rank, idle time as its own events."""
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(chart.ranks)
    ]
    for span in chart.spans:
        action = span.action
        args = {"stage": action.stage, "microbatch": action.microbatch, "slice": action.chunk}
        events.append(_event(str(action), KINDS[action.kind][0], span.rank, span.start_s, span.end_s) | {"args": args})
    for gap in chart.gaps:
        events.append(_event(CAUSES[gap.cause], "idle", gap.rank, gap.start_s, gap.end_s))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(name: str, category: str, rank: int, start_s: float, end_s: float) -> dict[str, Any]:
    start, length = start_s * 1e6, (end_s - start_s) * 1e6
    return {"name": name, "cat": category, "ph": "X", "pid": 0, "tid": rank, "ts": start, "dur": length}
