"""Pages of jobs, newest first, on a fixed key: each job appears once, whatever changes between two pages."""

import base64
import binascii
import re
from collections.abc import Sequence

from scheduler.api.cluster import Cluster
from scheduler.core.entities import JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.shown import ENDED_STATES, shown_state
from scheduler.core.state import State
from scheduler.core.story import Story, story_of


def to_cursor(id: int) -> str:
    return base64.urlsafe_b64encode(f"id<{id}".encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> int:
    """Raises JctError BAD_SPEC for anything that `to_cursor` did not make."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    found = re.fullmatch(r"id<([1-9][0-9]{0,17})", text)
    if found is None:
        raise JctError(Code.BAD_SPEC, "this cursor is none of jctd's", field="cursor", hint="begin without a cursor")
    return int(found[1])


async def page(
    cluster: Cluster, *, team: str | None, states: Sequence[str], with_ended: bool, before: int | None, limit: int
) -> tuple[list[Story], str | None]:
    """Jobs with id < before, and the cursor of the next page. states: empty for all that with_ended allows."""
    ended = [state for state in states if state in ENDED_STATES]
    wants_ended = bool(ended) if states else with_ended
    found = {story.job.id: story for story in _in_memory(cluster.state, team, states, wants_ended, before, limit + 1)}
    if wants_ended:
        for story in await cluster.past_jobs(before, limit + 1, team, ended):
            found.setdefault(story.job.id, story)
    ids = sorted(found, reverse=True)[: limit + 1]
    following = to_cursor(ids[limit - 1]) if len(ids) > limit else None
    return [found[id] for id in ids[:limit]], following


def _in_memory(
    state: State, team: str | None, states: Sequence[str], wants_ended: bool, before: int | None, count: int
) -> list[Story]:
    """The newest `count`. All that are not DONE are here; so is one that has just ended, before its commit."""
    found: list[Story] = []
    for id in sorted(state.jobs, reverse=True):
        job = state.jobs[id]
        if job.state is JobState.DONE and not wants_ended:
            continue
        if (before is not None and id >= before) or team not in (None, job.spec.team):
            continue
        story = story_of(state, job)
        if not states or shown_state(job, story.attempts, state.progress.get(id)) in states:
            found.append(story)
        if len(found) == count:
            break
    return found
