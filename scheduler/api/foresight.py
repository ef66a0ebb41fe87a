"""What will be, over REST: when a job starts and ends, and how well that was foreseen."""

from fastapi import APIRouter
from fastapi.responses import Response

from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import JobId, Plain, answer
from scheduler.api.shapes import Coverage, EstimateView, EtaView, Parts, RangeView
from scheduler.api.times import rfc3339, seconds
from scheduler.core.entities import Estimate, JobState, Result
from scheduler.core.ledger import Ledger, ledger
from scheduler.core.shown import shown_state
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.forecast import truth
from scheduler.forecast.outlook import CONFIDENCE, Outlook, Range

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
        unknown=None if over else why_unknown(seen), parts=parts_of(seen) if seen and seen.end else None,
        preemptions=seen.preemptions if seen else None, so_far=_so_far(cut), ended=rfc3339(job.ended_us),
        estimates=[_estimate(one, job.ended_us if job.result is Result.COMPLETED else None) for one in story.estimates],
        coverage=coverage_view(state),
    )  # fmt: skip


def why_unknown(seen: Outlook | None) -> str | None:
    """None where the end is known."""
    if seen is None:
        return "the forecast took too long"
    if seen.end is not None:
        return None
    if seen.guessed:
        return "nothing tells yet how much work it has, or how fast it is"
    return "it does not end in most of the futures that were run ahead"


def range_view(range_: Range | None) -> RangeView | None:
    if range_ is None:
        return None
    return RangeView(
        earliest=rfc3339(range_.low_us), likely=rfc3339(range_.mid_us), latest=rfc3339(range_.high_us)
    )


def parts_of(seen: Outlook | Estimate) -> Parts:
    parts = (seen.queueing_s, seen.startup_s, seen.training_s, seen.preemptions_s, seen.cleanup_s)
    return _parts(*parts)


def _parts(queueing: float, startup: float, training: float, preemptions: float, cleanup: float) -> Parts:
    return Parts(
        queueing_s=queueing, startup_s=startup, training_s=training, preemptions_s=preemptions, cleanup_s=cleanup,
        total_s=queueing + startup + training + preemptions + cleanup,
    )  # fmt: skip


def _so_far(cut: Ledger) -> Parts:
    parts = (cut.queueing_us, cut.startup_us, cut.training_us, cut.preemptions_us, cut.cleanup_us)
    return _parts(*map(seconds, parts))


def _estimate(one: Estimate, ended_us: int | None) -> EstimateView:
    end = RangeView(earliest=rfc3339(one.low_us), likely=rfc3339(one.mid_us), latest=rfc3339(one.high_us))
    return EstimateView(
        moment=one.moment, made=rfc3339(one.made_us), end=end, parts=parts_of(one), preemptions=one.preemptions,
        inside=one.low_us <= ended_us <= one.high_us if ended_us is not None else None,
    )  # fmt: skip


def coverage_view(state: State) -> Coverage:
    found = truth.outcomes(state)
    return Coverage(
        share=truth.coverage(state), inside=found["inside"], before=found["before"], after=found["after"],
        unknown=found["unknown"],
    )  # fmt: skip
