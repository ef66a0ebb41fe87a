"""What people see of a job's state: derived from entities and the pilot's phase, never stored (LIFECYCLE)."""

from policies.model.decision import Wait
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, EndCause, Job, JobState, Wanted
from scheduler.core.state import Progress
from scheduler.protocol.messages import Phase

ENDED_STATES = (
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_LOST", "OUT_OF_MEMORY", "DEADLINE",
)  # fmt: skip
LIVE_STATES = (
    "PENDING", "HELD", "REQUEUED", "STARTING", "RUNNING", "CHECKPOINTING", "PREEMPTING", "RESIZING", "STOPPING",
)  # fmt: skip
_STOPPING_AS = {EndCause.PREEMPTED: "PREEMPTING", EndCause.RESIZED: "RESIZING"}


def shown_state(job: Job, attempts: tuple[Attempt, ...], progress: Progress | None) -> str:
    """One of LIVE_STATES or ENDED_STATES. attempts: of the job, oldest first."""
    if job.state is JobState.DONE:
        return str(job.result)
    if job.state is JobState.QUEUED:
        if job.wanted is Wanted.HOLD:
            return "HELD"
        return "REQUEUED" if any(attempt.kind is not AttemptKind.PROBE for attempt in attempts) else "PENDING"
    attempt = attempts[-1]
    if attempt.state is AttemptState.STOPPING:
        return _STOPPING_AS.get(attempt.cause, "STOPPING") if attempt.cause is not None else "STOPPING"
    if attempt.state is AttemptState.RUNNING and attempt.kind is not AttemptKind.PROBE:
        saving = progress is not None and progress.phase is Phase.SAVING
        return "CHECKPOINTING" if saving else "RUNNING"
    return "STARTING"


def shown_reason(
    job: Job, attempts: tuple[Attempt, ...], unmet: Wait | None = None
) -> tuple[str, str, int | None] | None:
    """Why it is as it is: code, sentence, since when; None where there is nothing to explain. unmet: why it has no size
    that its owner allows, though it runs."""
    if job.state is not JobState.ACTIVE:
        return (job.reason_code, job.reason, job.reason_since_us) if job.reason_code else None
    attempt = attempts[-1]
    match attempt.state:
        case AttemptState.STOPPING:
            return "Stopping", attempt.stop_why, attempt.stopping_us
        case AttemptState.GATHERING:
            return "WaitingForPreemption", "waits for the jobs that hold its devices to stop", attempt.created_us
    if attempt.kind is AttemptKind.PROBE:
        return "Probing", "a short attempt on one device measures its layers", attempt.created_us
    return (unmet.code, unmet.text, None) if unmet is not None else None
