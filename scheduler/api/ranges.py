"""How ranges, parts and estimates look from outside."""

from scheduler.api.foresight_shapes import EstimateView, Parts, RangeView
from scheduler.api.times import rfc3339, seconds
from scheduler.core.entities import Estimate, Job, JobState
from scheduler.core.ledger import Ledger
from scheduler.forecast.outlook import Outlook, Range

NEVER = ("TooLarge", "NoSuchGPUType")
"""Reasons for which a job does not start in the cluster as it is, whatever ends."""

UNKNOWN_WORK = "nothing tells yet how much work it has, or how fast it is"


def why_unknown(seen: Outlook | None, job: Job | None = None) -> str | None:
    """None where the end is known. job: that waits, if it is one that was submitted."""
    if seen is not None and seen.end is not None:
        return None
    if job is not None and job.state is JobState.QUEUED and job.reason_code in NEVER:
        return never_starts(job.reason)
    if seen is None:
        return "the forecast took too long"
    if seen.guessed:
        return UNKNOWN_WORK
    return "it does not end in most of the futures that were run ahead"


def never_starts(reason: str) -> str:
    return f"it cannot start in this cluster as it is. {reason}"


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


def parts_so_far(cut: Ledger) -> Parts:
    parts = (cut.queueing_us, cut.startup_us, cut.training_us, cut.preemptions_us, cut.cleanup_us)
    return _parts(*map(seconds, parts))


def estimate_view(one: Estimate, ended_us: int | None) -> EstimateView:
    end = RangeView(earliest=rfc3339(one.low_us), likely=rfc3339(one.mid_us), latest=rfc3339(one.high_us))
    return EstimateView(
        moment=one.moment, made=rfc3339(one.made_us), end=end, parts=parts_of(one), preemptions=one.preemptions,
        inside=one.low_us <= ended_us <= one.high_us if ended_us is not None else None,
    )  # fmt: skip
