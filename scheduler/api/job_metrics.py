"""How jobs that run get on, for Prometheus (BUB-13): by the job's number and by nothing that its owner has written.

At most MOST jobs, the newest, so that a scrape stays small; a job that has ended has no line any more.
"""

import math
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from scheduler.core.entities import AttemptKind, AttemptState, JobState
from scheduler.core.state import State

MOST = 100
_TEXTS = {
    "jctd_job_step": "Finished steps.",
    "jctd_job_step_seconds": "Time of a step.",
    "jctd_job_samples_per_second": "Samples that training takes in.",
    "jctd_job_loss": "Training loss of the last step.",
    "jctd_job_validation_loss": "Of the last evaluation.",
    "jctd_job_bubble_share": "Part of a step in which ranks compute nothing, by their own timers.",
    "jctd_job_device_busy_percent": "Mean part of the time in which its devices are busy.",
}


def job_families(state: State) -> Iterator[GaugeMetricFamily]:
    """One gauge each; what is not known of a job has no line."""
    found = {job: _of(state, job) for job in _running(state)}
    for name, text in _TEXTS.items():
        family = GaugeMetricFamily(name, text, labels=["job"])
        for job, values in found.items():
            value = values.get(name)
            if value is not None and math.isfinite(value):
                family.add_metric([str(job)], value)
        yield family


def _running(state: State) -> list[int]:
    """Trainings and commands that run, the newest ones."""
    active = sorted((job.id for job in state.jobs.values() if job.state is JobState.ACTIVE), reverse=True)
    attempts = map(state.open_attempt, active)
    running = [
        attempt.job
        for attempt in attempts
        if attempt is not None and attempt.state is AttemptState.RUNNING and attempt.kind is not AttemptKind.PROBE
    ]
    return running[:MOST]


def _of(state: State, job: int) -> dict[str, float | None]:
    progress = state.progress.get(job)
    values: dict[str, float | None] = {"jctd_job_device_busy_percent": _busy(state, job)}
    if progress is None:
        return values
    evaluated, batch = progress.last_evaluation, progress.batch or state.jobs[job].global_batch
    return values | {
        "jctd_job_step": progress.step,
        "jctd_job_step_seconds": progress.step_time_s,
        "jctd_job_samples_per_second": batch / progress.step_time_s if batch and progress.step_time_s else None,
        "jctd_job_loss": progress.loss,
        "jctd_job_validation_loss": evaluated.loss if evaluated is not None else None,
        "jctd_job_bubble_share": progress.bubble_share,
    }


def _busy(state: State, job: int) -> float | None:
    """Of the devices that it holds and that are measured."""
    held = {lease.device for lease in state.leases_of(job, state.jobs[job].last_attempt)}
    nodes = {state.devices[device].node for device in held if device in state.devices}
    samples = (sample for node in nodes if node in state.sensed for sample in state.sensed[node].telemetry.devices)
    values = [sample.values.get("busy_percent") for sample in samples if sample.id in held]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
