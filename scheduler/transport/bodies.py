"""What is told to the outside of jobs, nodes and events: whole values, without secrets, logs or arguments."""

from datetime import UTC, datetime
from typing import Any

from scheduler.core.entities import Event
from scheduler.core.shown import shown_state
from scheduler.core.state import State
from scheduler.core.story import Story

Body = dict[str, Any]


def job_body(state: State, story: Story) -> Body:
    job = story.job
    return {
        "job": job.id, "state": shown_state(job, story.attempts, state.progress.get(job.id)), "result": job.result,
        "ended_by": job.ended_by, "reason": job.reason_code, "attempt": job.last_attempt or None,
        "exit_code": job.exit_code, "signal": job.signal,
    }  # fmt: skip


def node_body(state: State, id: str) -> Body:
    node, drain = state.nodes.get(id), state.drains.get(f"node/{id}")
    return {
        "node": id, "state": node.state if node is not None else None,
        "drained": drain.reason if drain is not None else None,
    }  # fmt: skip


def event_body(state: State, event: Event | None) -> Body:
    """epoch tells a restarted daemon's words from the old one's."""
    if event is None:
        return {"epoch": state.epoch, "seq": None, "event": None, "time": None}
    return {"epoch": state.epoch, "seq": event.seq, "event": event.kind, "time": _rfc3339(event.time_us)}


def _rfc3339(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
