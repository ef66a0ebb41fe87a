"""Why a job is where it is, over REST: the binding reason, its numbers, what would unblock it, since when."""

from collections import Counter
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import JobId, Plain, answer
from scheduler.api.foresight_shapes import WhyView
from scheduler.api.times import rfc3339, seconds
from scheduler.core.entities import JobState
from scheduler.core.shown import shown_reason, shown_state
from scheduler.core.sizes import why_out_of_range
from scheduler.core.snapshot import offered, priority_of
from scheduler.core.state import State
from scheduler.core.story import Story
from scheduler.forecast.outlook import Outlook

router = APIRouter(tags=["foresight"])

UNBLOCK = {
    "Pending": "the next scheduling pass, within seconds",
    "Resources": "the end, or a smaller shape, of a running job; or more devices",
    "GangPartial": "devices that come free together with those that are free; or a smaller minimum (jct update --gpus)",
    "Priority": "the start of the jobs that come first; or a higher priority (jct update --priority)",
    "QuotaTeam": "the end of another job of the team; or a higher cap (jct team set)",
    "QuotaUser": "the end of another job of the user; or a higher cap (jct user set)",
    "QuotaQueue": "the end of another job of the queue; or a higher cap (jct queues set)",
    "MaxRunning": "the end of another job that counts under the cap; or a higher cap",
    "ArrayLimit": "the end of another task of the array",
    "Dependency": "the end of the jobs it waits for",
    "DependencyFailed": "nothing: submit it again, after a job that completes, or with `afterany`",
    "BeginTime": "time alone; or an earlier begin time (jct update --begin)",
    "Held": "jct release",
    "QueuePaused": "an operator who lets the queue go on (jct queues set --no-paused)",
    "Reservation": "the end of the reservation (jct reserve), or devices elsewhere",
    "NodeDown": "the nodes' return, or devices elsewhere",
    "NoSuchGPUType": "a node with such devices; or other kinds in the job file",
    "TooLarge": "nothing in this cluster as it is: fewer GPUs, less memory per GPU, or more nodes",
    "Topology": "devices that come free beside each other; or plans for other shapes",
    "Backoff": "time alone; see `jct events` for what failed",
    "Interference": "quieter neighbours, or devices elsewhere",
    "CheckpointMissing": "the first checkpoint of the jobs of lower priority (jct checkpoint), or their end",
    "WaitingForPreemption": "the stopped jobs' last checkpoints; they have their grace period for that",
    "Draining": "jct resume, or devices elsewhere",
    "Probing": "the end of the probe, within a minute",
    "OutOfRange": "devices that come free; or another range (jct update --gpus)",
    "Stopping": "the end of its processes, within its grace period",
    "Running": "",
}
"""By reason code; what of it a user or an operator can do is named."""


@router.get("/jobs/{id}/why", response_model=WhyView)
async def why(id: JobId, caller: CallerDep, _: Plain) -> Response:
    return answer(_why(await caller.story(id, "why"), caller))


def _why(story: Story, caller: Caller) -> WhyView:
    job, state, now = story.job, caller.cluster.state, caller.cluster.now_us()
    code, text, since_us = shown_reason(job, story.attempts, why_out_of_range(state, job)) or _running(story)
    waits = job.state is JobState.QUEUED
    numbers = _numbers(state, story) if waits else {}
    unblock = UNBLOCK.get(code, "")
    if waits and (seen := caller.cluster.forecasts.outlooks.get(job.id)) is not None and seen.start is not None:
        unblock += f"; foreseen in {_in_s(seen, now):.0f} s"
    return WhyView(
        job=job.id, state=shown_state(job, story.attempts, state.progress.get(job.id)), code=code, text=text,
        unblock=unblock, since=rfc3339(since_us), numbers=numbers,
        waited_s=seconds(max(0, now - since_us)) if since_us is not None and job.state is not JobState.DONE else None,
    )  # fmt: skip


def _running(story: Story) -> tuple[str, str, int | None]:
    attempt = story.attempts[-1] if story.attempts else None
    if attempt is None:
        return "Pending", "the next scheduling pass will look at it", story.job.submitted_us
    if attempt.running_us is None:
        return "Starting", "its processes start", attempt.starting_us or attempt.created_us
    return "Running", "it has what it needs", attempt.running_us


def _in_s(seen: Outlook, now: int) -> float:
    assert seen.start is not None
    return max(0.0, seconds(seen.start.mid_us - now))


def _numbers(state: State, story: Story) -> dict[str, Any]:
    """devices: by kind, those that are offered, and of them the free. before: waiting jobs that come first. position:
    among all that wait, from 1."""
    job = story.job
    leased = {lease.device for lease in state.leases.values()}
    usable = [d for d in state.devices.values() if offered(state, d.id) and _suits(story, d.kind)]
    all_, free = Counter(d.kind for d in usable), Counter(d.kind for d in usable if d.id not in leased)
    order = (-priority_of(state, job), job.place_us, job.id)
    others = [other for other in state.jobs.values() if other.state is JobState.QUEUED and other.id != job.id]
    before = sum((-priority_of(state, other), other.place_us, other.id) < order for other in others)
    return {
        "min_devices": job.spec.min_devices, "max_devices": job.spec.max_devices,
        "devices": {kind: {"offered": count, "free": free[kind]} for kind, count in sorted(all_.items())},
        "priority": priority_of(state, job), "waiting": len(others) + 1, "position": before + 1,
        "waits_for": [parent for parent, _ in job.waits_for], "preemptions": job.preemptions,
    }  # fmt: skip


def _suits(story: Story, kind: str) -> bool:
    return not story.job.spec.device_kinds or kind in story.job.spec.device_kinds
