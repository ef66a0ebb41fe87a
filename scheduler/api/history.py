"""What became of jobs that have ended, over REST: their times, their parts, what was foreseen, how fast they ran.

One row a job holds all that `jct simulate` needs to play the same queue again.
"""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from scheduler.api.access import CallerDep
from scheduler.api.answers import MAX_ID, MAX_LIMIT, Strict, answer
from scheduler.api.foresight_shapes import HistoryPage, HistoryRow, RunView
from scheduler.api.ranges import estimate_view, range_view
from scheduler.api.times import rfc3339, seconds
from scheduler.api.views import used_by
from scheduler.core.entities import Attempt, AttemptKind, Moment, Result
from scheduler.core.ledger import ledger
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.forecast.outlook import Range

router = APIRouter(tags=["accounting"])


class HistoryQuery(Strict):
    before: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100


@router.get("/history", response_model=HistoryPage)
async def history(query: Annotated[HistoryQuery, Query()], caller: CallerDep) -> Response:
    """Jobs that have ended, newest first; of the caller's team, or of all for operators."""
    cluster = caller.cluster
    if caller.team_seen == "":
        return answer(HistoryPage(jobs=[], next=None))
    stories = await cluster.past_jobs(query.before, query.limit, caller.team_seen, ())
    following = stories[-1].job.id if len(stories) == query.limit else None
    return answer(HistoryPage(jobs=[history_row(story, cluster.state) for story in stories], next=following))


def history_row(story: Story, state: State) -> HistoryRow:
    """state: for the kinds of devices that are still there."""
    job, spec = story.job, story.job.spec
    ended_us = job.ended_us or job.submitted_us
    cut, used = ledger(job, story.attempts, ended_us), used_by(story, ended_us)
    runs = [run for attempt in story.attempts if (run := _run(attempt, story, state)) is not None]
    started = [a.starting_us for a in story.attempts if a.kind is not AttemptKind.PROBE and a.starting_us is not None]
    first = next((one for one in story.estimates if one.moment is Moment.SUBMIT), None)
    seen = Range(first.low_us, first.mid_us, first.high_us, first.spread) if first is not None else None
    return HistoryRow(
        job=job.id, name=spec.name, team=spec.team, user=job.user, queue=spec.queue, priority=job.priority,
        model=job.spec_key[:12], result=str(job.result), exit_code=job.exit_code,
        submitted=rfc3339(job.submitted_us), started=rfc3339(started[0]) if started else None,
        ended=rfc3339(ended_us), jct_s=seconds(ended_us - job.submitted_us), gpus_min=spec.min_devices,
        gpus_max=spec.max_devices, gpus_preferred=spec.preferred_devices, steps=_steps(story, runs),
        attempts=len(story.attempts), preemptions=job.preemptions, queueing_s=seconds(cut.queueing_us),
        startup_s=seconds(cut.startup_us), training_s=seconds(cut.training_us),
        preemptions_s=seconds(cut.preemptions_us), cleanup_s=seconds(cut.cleanup_us), gpu_s=used["gpu_s"],
        lost_gpu_s=used["lost_gpu_s"], foreseen=range_view(seen), runs=runs,
        estimates=[estimate_view(one, ended_us if job.result is Result.COMPLETED else None) for one in story.estimates],
    )  # fmt: skip


def _steps(story: Story, runs: list[RunView]) -> float | None:
    """Of a command, seconds on its devices."""
    if story.job.spec.is_command:
        return sum(run["steps"] for run in runs) or None
    steps = [attempt.last_step for attempt in story.attempts if attempt.last_step]
    return float(steps[-1]) if steps else None


def _run(attempt: Attempt, story: Story, state: State) -> RunView | None:
    """How fast an attempt went in its last shape; None where it made no step."""
    shape = story.shape_of(attempt.number)
    if attempt.kind is AttemptKind.PROBE or shape is None or None in (attempt.running_us, attempt.starting_us):
        return None
    until_us = attempt.stopping_us or attempt.ended_us
    assert attempt.running_us is not None
    assert attempt.starting_us is not None
    if until_us is None or until_us <= attempt.running_us:
        return None
    trained_s = seconds(until_us - attempt.running_us)
    is_command = attempt.kind is AttemptKind.COMMAND
    # it runs from its first finished step on
    steps = trained_s if is_command else float((attempt.last_step or 0) - (attempt.resumed_step or 0) - 1)
    if steps <= 0:
        return None
    members = {member.number: member for member in story.members if member.attempt == attempt.number}
    ours = [members[number] for number in shape.ranks if number in members]
    known = (state.devices.get(member.device) for member in ours)
    kinds = {device.kind for device in known if device is not None}
    step_s = trained_s / steps
    return RunView(
        kind=kinds.pop() if len(kinds) == 1 else None, per_node=list(Counter(member.node for member in ours).values()),
        plan="command" if is_command or shape.plan is None else shape.plan.name,
        steps=steps, step_time_s=step_s,
        start_s=max(0.0, seconds(attempt.running_us - attempt.starting_us) - (0.0 if is_command else step_s)),
    )  # fmt: skip
