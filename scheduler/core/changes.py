"""A running attempt changes its shape while it trains: its next generation (LIFECYCLE 14 to 23).

1. A resize is *proposed* where every member says that it can change live and each new device is free, or will be when
   somebody else has stopped or left. Newcomers and their leases are written down with the generation.
2. When all its devices are held the generation is *gathered*: from then on Targets name it, newcomers start and import
   while training goes on, and the pilot switches at a step boundary, or drops the change.
3. The word of the new generation's pilot makes it ACTIVE. Who has no place in it leaves by itself, and its device goes
   on to whom it was promised.
4. A change that is dropped is done once more through a checkpoint and a new attempt. Where nobody waits for a device,
   and only a newcomer had died or the job writes no checkpoints, it goes on as it was.
"""

from dataclasses import replace

from policies.model.decision import Start
from scheduler.core.beginnings import lease_device
from scheduler.core.endings import stop_attempt
from scheduler.core.entities import (
    Attempt,
    AttemptState,
    EndCause,
    Generation,
    GenerationState,
    Job,
    LeaseState,
    Member,
)
from scheduler.core.leases import drop_generation
from scheduler.core.preemptible import changes_live
from scheduler.core.state import Change, State
from scheduler.core.turn import Turn
from scheduler.protocol.messages import Report


def can_change(state: State, start: Start) -> bool:
    """Whether a running job can take these devices and this plan without stopping."""
    attempt = state.open_attempt(start.job)
    if attempt is None or start.plan is None or state.proposed(attempt.job, attempt.number) is not None:
        return False
    own = {member.device for member in state.present_members(attempt.job, attempt.number)}
    return changes_live(state, attempt) and all(
        device in own or _comes_free(state, device) for device in start.devices
    )


def _comes_free(state: State, device: str) -> bool:
    """It is free, or its holder is on its way out and waits for nobody."""
    for lease in state.leases_on(device):
        if lease.state is not LeaseState.HELD:
            return False
        attempt = state.attempts[lease.job, lease.attempt]
        if attempt.state is AttemptState.STOPPING:
            continue
        generation = state.aimed(lease.job, lease.attempt)
        if attempt.state is not AttemptState.RUNNING or generation is None or lease.member in generation.ranks:
            return False
    return True


def propose(turn: Turn, start: Start, nonce: str) -> None:
    """The next generation of a running job. Members whose device stays keep their process."""
    state = turn.state
    attempt = state.open_attempt(start.job)
    assert attempt is not None
    key = (attempt.job, attempt.number)
    present = {member.device: member for member in state.present_members(*key)}
    ranks: list[int] = []
    count = len(state.members_of(*key))
    for device in start.devices:
        if device in present:
            ranks.append(present[device].number)
            continue
        ranks.append(count)
        node = state.devices[device].node
        turn.put(Member(job=key[0], attempt=key[1], number=count, node=node, device=device))
        lease_device(turn, device, *key, count)
        count += 1
    number = len(state.generations_of(*key)) + 1
    turn.put(Generation(job=key[0], attempt=key[1], number=number, plan=start.plan, ranks=tuple(ranks)))
    turn.put(replace(attempt, store=None))
    state.changing[attempt.job] = Change(start, nonce, turn.now)
    plan = start.plan
    assert plan is not None
    text = f"from {len(present)} to {len(start.devices)} device(s), {plan.shape}{plan.saving}, while it trains"
    data = {"devices": list(start.devices), "plan": plan.shape, "generation": number}
    turn.note("Resizing", text, job=attempt.job, attempt=attempt.number, data=data)


def take_word(turn: Turn, attempt: Attempt, report: Report) -> None:
    """What a report says about a change that is under way: it has happened, or it was dropped."""
    state = turn.state
    proposed = state.proposed(attempt.job, attempt.number)
    active = state.generation_of(attempt.job, attempt.number)
    if proposed is None or active is None:
        return
    if report.member == proposed.pilot and report.generation == proposed.number and report.plan is not None:
        turn.put(replace(active, state=GenerationState.CLOSED))
        turn.put(replace(proposed, state=GenerationState.ACTIVE))
        state.changing.pop(attempt.job, None)
        state.changed_us[attempt.job] = turn.now
        assert proposed.plan is not None
        text = f"{proposed.plan.shape}{proposed.plan.saving} on {len(proposed.ranks)} device(s)"
        turn.note("Resized", text, job=attempt.job, attempt=attempt.number, data={"generation": proposed.number})
        turn.replan()
    elif report.member == active.pilot and report.dropped >= proposed.number:
        drop(turn, attempt, proposed, report.message or "its pilot has dropped it")


def take_revision(turn: Turn, attempt: Attempt, report: Report) -> None:
    """Its pilot has changed the cut of the running generation by itself (LIFECYCLE 23): what runs is the plan."""
    active = turn.state.generation_of(attempt.job, attempt.number)
    if active is None or active.plan is None or report.plan is None or report.generation != active.number:
        return
    if not report.revision or report.plan == active.plan or report.plan.world_size != active.plan.world_size:
        return
    turn.put(replace(active, plan=report.plan))
    text = f"revision {report.revision}: {report.plan.sizes} layers in its stages"
    data = {"revision": report.revision, "layers": list(map(len, (stage.layers for stage in report.plan.stages)))}
    turn.note("Repartitioned", text, job=attempt.job, attempt=attempt.number, data=data)


def newcomer_ended(turn: Turn, attempt: Attempt, why: str) -> None:
    """A member of the proposed generation ended before the decision: no change (LIFECYCLE 20)."""
    proposed = turn.state.proposed(attempt.job, attempt.number)
    if proposed is not None and attempt.state is AttemptState.RUNNING:
        drop(turn, attempt, proposed, why, goes_on=True)


def judge_change(turn: Turn, job: Job, attempt: Attempt) -> None:
    """A change that takes longer than a start may is dropped."""
    proposed = turn.state.proposed(job.id, attempt.number)
    deadline = change_deadline(turn.state, attempt, turn.settings.start_timeout_s)
    if proposed is not None and deadline is not None and turn.now >= deadline:
        drop(turn, attempt, proposed, "it took longer than allowed")


def change_deadline(state: State, attempt: Attempt, allowed_s: float) -> int | None:
    """When the change under way is late, in microseconds; None where there is none."""
    if state.proposed(attempt.job, attempt.number) is None:
        return None
    change = state.changing.get(attempt.job)
    return (change.since_us if change is not None else state.started_us) + round(allowed_s * 1e6)


def drop(turn: Turn, attempt: Attempt, proposed: Generation, why: str, *, goes_on: bool = False) -> None:
    """No live change. goes_on: the job may stay as it is, if nobody waits for what it was to give up."""
    state, job = turn.state, turn.state.jobs[attempt.job]
    drop_generation(turn, proposed)
    turn.note("ResizeDropped", why, job=job.id, attempt=attempt.number)
    change = state.changing.pop(job.id, None)
    state.stops_to_change[job.id] = attempt.number
    turn.replan()
    keeps_work = job.spec.checkpoint is not None
    if attempt.state is not AttemptState.RUNNING or ((goes_on or not keeps_work) and not _waited_for(state, attempt)):
        return
    if change is not None:
        state.resizing[job.id] = (change.start, change.nonce)
    text = f"resized through a checkpoint: {why}"
    stop_attempt(turn, job, EndCause.RESIZED, grace_s=job.spec.grace_s, save=True, why=text)


def _waited_for(state: State, attempt: Attempt) -> bool:
    """Whether another job was promised one of the attempt's devices."""
    present = state.present_members(attempt.job, attempt.number)
    return any(
        lease.state is LeaseState.PROMISED and lease.job != attempt.job
        for member in present
        for lease in state.leases_on(member.device)
    )
