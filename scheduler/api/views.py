"""What a job, a node, a device and an event look like from outside: pure functions of entities and memory.

Times are UTC, RFC 3339. Unknown is null, never 0. Values of `env` and `arguments` stay inside: they may be secrets.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from policies.ir.plan import ParallelPlan
from scheduler.api.cluster import Cluster
from scheduler.api.ranges import estimate_view
from scheduler.api.shapes import (
    AfterView,
    AttemptView,
    Eta,
    EventView,
    Gpus,
    JobSummary,
    JobView,
    LedgerView,
    MemberView,
    NeighbourView,
    Plan,
    Reason,
    UsedView,
    Validation,
)
from scheduler.api.times import rfc3339, seconds
from scheduler.core.accounts import lost_s
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    Event,
    JobState,
    LeaseState,
    Member,
    Result,
)
from scheduler.core.ledger import ledger
from scheduler.core.shown import shown_reason, shown_state
from scheduler.core.sizes import why_out_of_range
from scheduler.core.state import Progress, State
from scheduler.core.story import Story
from scheduler.forecast.outlook import Outlook

ETA_MARGIN = 1.25
"""The late end of the range before there is a forecast: steps taken so far say nothing of checkpoints, evaluation and
disturbances to come."""


@dataclass(frozen=True)
class Moment:
    """What the views of many jobs share: the state, the time and the newest forecast."""

    state: State
    now_us: int
    outlooks: Mapping[int, Outlook]

    @classmethod
    def at(cls, cluster: Cluster) -> "Moment":
        return cls(cluster.state, cluster.now_us(), cluster.forecasts.outlooks)

    @cached_property
    def held(self) -> Counter[tuple[int, int]]:
        """How many devices each attempt holds; counted once, and only where a job of the view is open."""
        leases = self.state.leases.values()
        return Counter((x.job, x.attempt) for x in leases if x.state is LeaseState.HELD)


def plan_view(plan: ParallelPlan | None) -> Plan | None:
    if plan is None:
        return None
    return Plan(
        stages=len(plan.stages),
        micro_batches=plan.microbatches,
        micro_batch_size=plan.microbatch_size,
        replicas=plan.replicas,
        schedule=plan.schedule,
        recompute=plan.recomputes,
        offload=plan.offload,
        bounds=[[stage.first, stage.stop] for stage in plan.stages],
    )


def job_summary(story: Story, moment: Moment) -> JobSummary:
    job, state = story.job, moment.state
    progress = state.progress.get(job.id)
    attempt = story.attempts[-1] if story.attempts else None
    is_open = attempt is not None and attempt.state is not AttemptState.ENDED
    is_over = job.state is JobState.DONE
    reason = shown_reason(job, story.attempts, why_out_of_range(state, job))
    return JobSummary(
        id=job.id,
        name=job.spec.name,
        team=job.spec.team,
        queue=job.spec.queue,
        user=job.user,
        priority=job.priority,
        state=shown_state(job, story.attempts, progress),
        reason=Reason(code=reason[0], text=reason[1], since=rfc3339(reason[2])) if reason else None,
        result=job.result,
        ended_by=job.ended_by,
        exit_code=job.exit_code if is_over else None,
        signal=job.signal if is_over else None,
        gpus=Gpus(
            have=moment.held[job.id, job.last_attempt] if is_open else 0,
            min=job.spec.min_devices,
            max=job.spec.max_devices,
        ),
        plan=_newest_plan(story),
        nodes=_nodes(story, attempt.number) if attempt is not None and is_open else [],
        step=_step(story, progress),
        total_steps=job.total_steps,
        loss=progress.loss if progress else None,
        eta=_eta(story, moment, progress),
        submitted=rfc3339(job.submitted_us),
        ended=rfc3339(job.ended_us),
        checkpoint_step=job.saved_step,
        preemptions=job.preemptions,
        failures=job.failures,
        faults=job.faults,
        attempt=job.last_attempt or None,
    )


def job_view(story: Story, moment: Moment) -> JobView:
    job, spec = story.job, story.job.spec
    cut = ledger(job, story.attempts, moment.now_us)
    progress = moment.state.progress.get(job.id) if job.state is JobState.ACTIVE else None
    return JobView(
        **job_summary(story, moment),
        now=rfc3339(moment.now_us),
        step_time_s=progress.step_time_s if progress is not None else None,
        bubble_share=progress.bubble_share if progress is not None else None,
        labels=spec.labels,
        note=spec.note,
        entrypoint=spec.entrypoint,
        command=list(spec.command),
        script=spec.script,
        time_limit_s=spec.time_limit_s,
        begin=rfc3339(spec.begin_us),
        deadline=rfc3339(spec.deadline_us),
        after=[AfterView(job=parent, how=how) for parent, how in spec.after],
        array=job.array,
        task=job.task,
        env_from=list(spec.env_from),
        used=used_by(story, moment.now_us),
        workdir=spec.workdir,
        env_keys=sorted(spec.env),
        global_batch=job.global_batch,
        numerics=spec.numerics,
        preemptible=spec.preemptible,
        checkpoint_dir=spec.checkpoint.dir if spec.checkpoint else None,
        validation=Validation(first_loss=job.first_validation_loss, last_loss=job.last_validation_loss),
        ledger=LedgerView(
            queueing_s=seconds(cut.queueing_us),
            startup_s=seconds(cut.startup_us),
            training_s=seconds(cut.training_us),
            preemptions_s=seconds(cut.preemptions_us),
            cleanup_s=seconds(cut.cleanup_us),
            total_s=seconds(cut.total_us),
        ),
        estimates=[
            estimate_view(one, job.ended_us if job.result is Result.COMPLETED else None) for one in story.estimates
        ],
        neighbours=_neighbours(story, moment.state),
        attempts=[_attempt_view(attempt, story) for attempt in story.attempts],
    )


def _neighbours(story: Story, state: State) -> list[NeighbourView]:
    """Of the devices that it holds."""
    held = [lease.device for lease in state.leases_of(story.job.id, story.job.last_attempt)]
    return [
        NeighbourView(
            node=contested.node,
            index=state.devices[device].index,
            device=device,
            costs_percent=100 * (contested.ratio - 1),
            since=rfc3339(contested.since_us) or "",
        )
        for device in held
        if device in state.devices and (contested := state.contested.get(device)) is not None
    ]


def used_by(story: Story, now_us: int) -> UsedView:
    """What later attempts saved makes nothing good that an earlier one lost."""
    gpu_s = lost_gpu_s = 0.0
    saved = [*(attempt.saved_step for attempt in story.attempts[1:]), story.job.saved_step]
    for attempt, saved_step in zip(story.attempts, saved, strict=False):
        if attempt.starting_us is not None:
            devices = sum(member.attempt == attempt.number for member in story.members)
            gpu_s += devices * seconds((attempt.ended_us or now_us) - attempt.starting_us)
            lost_gpu_s += devices * lost_s(attempt, saved_step)
    return UsedView(gpu_s=gpu_s, lost_gpu_s=lost_gpu_s)


def _attempt_view(attempt: Attempt, story: Story) -> AttemptView:
    members = [member for member in story.members if member.attempt == attempt.number]
    generation = story.shape_of(attempt.number)
    plan = generation.plan if generation and not story.job.spec.is_command else None
    ranks = {member: rank for rank, member in enumerate(generation.ranks)} if generation else {}
    return AttemptView(
        attempt=attempt.number,
        kind=attempt.kind,
        state=attempt.state,
        cause=attempt.cause,
        message=attempt.message,
        stages=len(plan.stages) if plan else None,
        plan=plan_view(plan),
        nodes=_nodes(story, attempt.number),
        devices=[member.device for member in _present(story, attempt.number)],
        created=rfc3339(attempt.created_us),
        starting=rfc3339(attempt.starting_us),
        running=rfc3339(attempt.running_us),
        stopping=rfc3339(attempt.stopping_us),
        ended=rfc3339(attempt.ended_us),
        resumed_step=attempt.resumed_step,
        last_step=attempt.last_step,
        members=[_member_view(member, ranks.get(member.number)) for member in members],
    )


def _member_view(member: Member, rank: int | None) -> MemberView:
    return MemberView(
        member=member.number,
        rank=rank,
        node=member.node,
        device=member.device,
        exit_code=member.exit_code,
        signal=member.signal,
        cause=member.cause,
        message=member.message,
    )


def _newest_plan(story: Story) -> Plan | None:
    """Of the newest attempt that had one; a probe has none."""
    if story.job.spec.is_command:
        return None
    shapes = (story.shape_of(attempt.number) for attempt in reversed(story.attempts))
    return plan_view(next((shape.plan for shape in shapes if shape is not None and shape.plan is not None), None))


def _present(story: Story, attempt: int) -> list[Member]:
    """Members of the attempt's present shape, in the order of their ranks."""
    shape = story.shape_of(attempt)
    members = {member.number: member for member in story.members if member.attempt == attempt}
    return [members[number] for number in shape.ranks if number in members] if shape is not None else []


def _nodes(story: Story, attempt: int) -> list[str]:
    """In the order of ranks, each once."""
    return list(dict.fromkeys(member.node for member in _present(story, attempt)))


def _step(story: Story, progress: Progress | None) -> int | None:
    """Steps that count: of the run under way, else what a resume would begin with, else where the job ended."""
    job = story.job
    if job.state is JobState.ACTIVE and progress is not None and progress.step is not None:
        return progress.step
    if job.state is JobState.DONE:
        steps = [attempt.last_step for attempt in story.attempts if attempt.last_step is not None]
        return steps[-1] if steps else job.saved_step
    return job.saved_step


def _eta(story: Story, moment: Moment, progress: Progress | None) -> Eta | None:
    job, now = story.job, moment.now_us
    if job.state is JobState.DONE:
        return None
    seen = moment.outlooks.get(job.id)
    start = seen.start if seen is not None and job.state is JobState.QUEUED else None
    if seen is not None and (start or seen.end):
        return Eta(
            start=rfc3339(max(now, start.mid_us)) if start else None,
            finish_earliest=rfc3339(max(now, seen.end.low_us)) if seen.end else None,
            finish_latest=rfc3339(max(now, seen.end.high_us)) if seen.end else None,
        )
    if job.state is JobState.QUEUED:
        start_us = moment.state.start_at_us.get(job.id)
        return Eta(start=rfc3339(start_us), finish_earliest=None, finish_latest=None) if start_us is not None else None
    attempt = story.attempts[-1] if story.attempts else None
    running = attempt is not None and attempt.state is AttemptState.RUNNING and attempt.kind is AttemptKind.TRAIN
    if not running or progress is None or progress.step is None or None in (progress.step_time_s, job.total_steps):
        return None
    left_us = max(0, job.total_steps - progress.step) * progress.step_time_s * 1e6  # type: ignore[operator]
    return Eta(
        start=None,
        finish_earliest=rfc3339(now + round(left_us)),
        finish_latest=rfc3339(now + round(left_us * ETA_MARGIN)),
    )


def event_view(event: Event) -> EventView:
    return EventView(
        seq=event.seq,
        time=rfc3339(event.time_us),
        kind=event.kind,
        actor=event.actor,
        message=event.message,
        job=event.job,
        attempt=event.attempt,
        node=event.node,
        data=event.data,
    )
