"""Pages of jobs, newest first, on a fixed key: each job appears once, whatever changes between two pages."""

import base64
import binascii
from collections.abc import Sequence

from scheduler.api.cluster import Cluster
from scheduler.core.entities import JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.shown import ENDED_STATES, shown_state
from scheduler.core.story import Story, story_of


def to_cursor(id: int) -> str:
    return base64.urlsafe_b64encode(f"id<{id}".encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> int:
    """Raises JctError BAD_SPEC for anything that `to_cursor` did not make."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith("id<") or not text[3:].isdecimal() or to_cursor(int(text[3:])) != cursor:
        raise JctError(Code.BAD_SPEC, "this cursor is none of jctd's", field="cursor", hint="begin without a cursor")
    return int(text[3:])


async def page(
    cluster: Cluster, *, team: str | None, states: Sequence[str], with_ended: bool, before: int | None, limit: int
) -> tuple[list[Story], str | None]:
    """Jobs with id < before, and the cursor of the next page. states: empty for all that with_ended allows."""
    ended = [state for state in states if state in ENDED_STATES]
    wants_ended = bool(ended) if states else with_ended
    found = {story.job.id: story for story in _in_memory(cluster, team, states, before, wants_ended)}
    if wants_ended:
        for story in await cluster.past_jobs(before, limit + 1, team, ended):
            found.setdefault(story.job.id, story)
    ids = sorted(found, reverse=True)[: limit + 1]
    following = to_cursor(ids[limit - 1]) if len(ids) > limit else None
    return [found[id] for id in ids[:limit]], following


def _in_memory(
    cluster: Cluster, team: str | None, states: Sequence[str], before: int | None, wants_ended: bool
) -> list[Story]:
    """Jobs that are not DONE are all in memory; a job that has just ended is there before the database has its end."""
    state = cluster.state
    stories = [
        story_of(state, job)
        for job in state.jobs.values()
        if (wants_ended or job.state is not JobState.DONE)
        and (before is None or job.id < before)
        and team in (None, job.spec.team)
    ]
    if not states:
        return stories
    return [x for x in stories if shown_state(x.job, x.attempts, state.progress.get(x.job.id)) in states]
