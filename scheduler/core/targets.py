"""What each node's members shall be: a pure function of the state (LIFECYCLE 46)."""

from collections.abc import Collection, Iterable

from policies.cost import profile_at
from policies.model.profile import ModelProfile
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, Entity, Generation, Job, JobState, Member
from scheduler.core.settings import CoreSettings
from scheduler.core.state import Role, State
from scheduler.protocol.messages import Run, Stop, Target
from scheduler.protocol.spec import AttemptSpec


def targets_by_node(
    state: State, nodes: Collection[str], settings: CoreSettings
) -> dict[str, tuple[Target, ...]]:
    """All members that these nodes shall have. A member leaves once its end is in the database."""
    found: dict[str, list[Target]] = {node: [] for node in nodes}
    for member in state.members.values():
        targets = found.get(member.node) if member.gone_us is None else None
        if targets is not None and (target := _wanted(state, member, settings)) is not None:
            targets.append(target)
    return {node: tuple(targets) for node, targets in found.items()}


def targets_of(state: State, node: str, settings: CoreSettings) -> tuple[Target, ...]:
    return targets_by_node(state, [node], settings)[node]


def nodes_touched(state: State, rows: Iterable[Entity]) -> list[str]:
    """Where Targets may have changed with these rows: on the nodes of the jobs that they are about. A job that only
    waits is on none."""
    jobs: dict[int, None] = {}
    for row in rows:
        if isinstance(row, Attempt | Generation | Member):
            jobs[row.job] = None
        elif isinstance(row, Job) and row.state is JobState.ACTIVE:
            jobs[row.id] = None
    nodes: dict[str, None] = {}
    for id in jobs:
        job = state.jobs.get(id)
        for number in range(1, job.last_attempt + 1 if job is not None else 1):
            nodes.update((member.node, None) for member in state.members_of(id, number))
    return list(nodes)


def _wanted(state: State, member: Member, settings: CoreSettings) -> Target | None:
    """None while its gang still gathers."""
    attempt = state.attempts[member.job, member.attempt]
    if attempt.state is AttemptState.GATHERING or state.awaits_device(member):
        return None
    return _target(state, member, attempt, settings)


def _target(state: State, member: Member, attempt: Attempt, settings: CoreSettings) -> Target:
    generation = state.aimed(member.job, member.attempt)
    assert generation is not None
    return Target(
        job=member.job, attempt=member.attempt, member=member.number, device=member.device,
        want=_want(state, member, attempt),
        spec=_spec(state, state.jobs[member.job], attempt, generation, settings),
        generation=generation.number, plan=generation.plan if attempt.kind is not AttemptKind.COMMAND else None,
        ranks=generation.ranks, pilot=pilot_of(attempt, generation), store=attempt.store, save_no=attempt.save_no,
        signal_no=attempt.signal_no, signal=attempt.signal,
    )


def _want(state: State, member: Member, attempt: Attempt) -> Run | Stop:
    if _was_dropped(state, member):
        return Stop(grace_s=0.0, why="its generation was dropped", save=False)
    match attempt.state:
        case AttemptState.STARTING | AttemptState.RUNNING:
            return Run()
        case AttemptState.STOPPING:
            return Stop(grace_s=attempt.stop_grace_s or 0.0, why=attempt.stop_why, save=attempt.stop_save)
        case _:  # ended while its node was lost: what is left there is a late owner
            return Stop(grace_s=0.0, why=attempt.message or "the attempt has ended", save=False)


def _was_dropped(state: State, member: Member) -> bool:
    """It came for a generation that was dropped. Who was in one that ran leaves by itself."""
    if state.role(member) is not Role.PAST:
        return False
    generations = state.generations_of(member.job, member.attempt)
    return not any(one.ran for one in generations if member.number in one.ranks)


def pilot_of(attempt: Attempt, generation: Generation) -> int:
    """The member that speaks for the gang; of a command, the first one."""
    return generation.ranks[0] if attempt.kind is AttemptKind.COMMAND else generation.pilot


def _spec(
    state: State, job: Job, attempt: Attempt, generation: Generation, settings: CoreSettings
) -> AttemptSpec:
    return AttemptSpec(
        kind=attempt.kind, job=job.spec, user=job.user, nonce=attempt.nonce, saved_step=attempt.saved_step,
        spec_key=job.spec_key, fingerprint=job.fingerprint,
        places=_places(state, attempt),
        start_timeout_s=settings.start_timeout_s, probe_timeout_s=settings.probe_timeout_s,
        profile=_profile(state, job, attempt, generation),
    )


def _profile(state: State, job: Job, attempt: Attempt, generation: Generation) -> ModelProfile | None:
    """For a job that adapts: its layers at the plan's micro-batch size, on its own kind of device where probed."""
    if job.spec.adapt is None or attempt.kind is not AttemptKind.TRAIN or generation.plan is None:
        return None
    kinds = {state.devices[member.device].kind for member in state.present_members(job.id, attempt.number)}
    records = [record for (key, _), record in state.profiles.items() if key == job.spec_key]
    records.sort(key=lambda record: record.device_kind not in kinds)
    return profile_at(records[0].profiles, generation.plan.microbatch_size) if records else None


def _places(state: State, attempt: Attempt) -> tuple[tuple[str, str], ...]:
    """For commands, which must know their place on their node; others ask their plan."""
    if attempt.kind is not AttemptKind.COMMAND:
        return ()
    return tuple((member.node, member.device) for member in state.members_of(attempt.job, attempt.number))
