"""What will be, over REST: when a job starts and ends, and how well that was foreseen."""

from fastapi import APIRouter
from fastapi.responses import Response

from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import JobId, Plain, answer
from scheduler.api.foresight_shapes import Coverage, EtaView
from scheduler.api.ranges import estimate_view, parts_of, parts_so_far, range_view, why_unknown
from scheduler.api.times import rfc3339
from scheduler.core.entities import JobState, Result
from scheduler.core.ledger import ledger
from scheduler.core.shown import shown_state
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.forecast import truth
from scheduler.forecast.outlook import CONFIDENCE, Outlook

router = APIRouter(tags=["foresight"])


@router.get("/jobs/{id}/eta", response_model=EtaView)
async def eta(id: JobId, caller: CallerDep, _: Plain) -> Response:
    """A range that shall hold nine times in ten, from the queue run ahead; null where nobody knows."""
    story = await caller.story(id, "eta")
    seen = None if story.job.state is JobState.DONE else await caller.cluster.forecasts.outlook(id)
    return answer(_eta(await caller.story(id, "eta"), seen, caller))


def _eta(story: Story, seen: Outlook | None, caller: Caller) -> EtaView:
    job, state = story.job, caller.cluster.state
    over = job.state is JobState.DONE
    cut = ledger(job, story.attempts, caller.cluster.now_us())
    return EtaView(
        now=rfc3339(caller.cluster.now_us()), job=job.id,
        state=shown_state(job, story.attempts, state.progress.get(job.id)), confidence=CONFIDENCE,
        made=rfc3339(seen.made_us) if seen else None, futures=seen.futures if seen else 0,
        start=range_view(seen.start) if seen else None, end=range_view(seen.end) if seen else None,
        unknown=None if over else why_unknown(seen, job), parts=parts_of(seen) if seen and seen.end else None,
        preemptions=seen.preemptions if seen else None, so_far=parts_so_far(cut), ended=rfc3339(job.ended_us),
        estimates=[
            estimate_view(one, job.ended_us if job.result is Result.COMPLETED else None) for one in story.estimates
        ],
        coverage=coverage_view(state),
    )  # fmt: skip


def coverage_view(state: State) -> Coverage:
    found = truth.outcomes(state)
    return Coverage(
        share=truth.coverage(state), inside=found["inside"], before=found["before"], after=found["after"],
        unknown=found["unknown"],
    )  # fmt: skip
