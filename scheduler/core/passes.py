"""A scheduling pass: ask with a snapshot, re-check the answer against the present state, commit it whole or not.

1. `take_plan`: when something changed and no pass is under way, ask the policy.
2. The policy answers some time later; meanwhile the state may have moved on.
3. `planned`: each start and resize is checked with all that it rests on; what no longer holds is dropped and asked
   anew.
4. Stops, new attempts, generations, members and leases are one transaction. A resized job changes its shape while it
   trains; where that cannot be it stops with a checkpoint, its new devices are kept for it, and its next attempt begins
   in the transaction that ends the last.
5. Every job that waits gets its reason.
"""

from collections import Counter
from dataclasses import replace

from policies.model.decision import Preempt, Resize, Start, Wait
from scheduler.core.beginnings import begin, unavailable
from scheduler.core.binding import Binder
from scheduler.core.caps import Use, holders, too_much, use_of
from scheduler.core.changes import can_change, propose
from scheduler.core.effects import Plan
from scheduler.core.endings import stop_attempt
from scheduler.core.entities import AttemptState, EndCause, Job, JobState, Wanted
from scheduler.core.events import Planned
from scheduler.core.preemptible import changes_live
from scheduler.core.reserved import closed_nodes
from scheduler.core.settings import us
from scheduler.core.sizes import out_of_range, size_of
from scheduler.core.snapshot import HALF_LIFE_S, priority_of, take_snapshot
from scheduler.core.state import State
from scheduler.core.turn import Turn
from scheduler.protocol.plausible import LONGEST_S, is_plan

AGAIN_S = 1.0
"""A policy that wants to be asked again without anything having happened waits so long at least."""


def take_plan(state: State, now: int, gap_s: float = 0.0, half_life_s: float = HALF_LIFE_S) -> Plan | None:
    """The next question to the policy, or None while one is open, nothing has changed, or the last is too fresh.

    half_life_s: of what teams have used.
    """
    if state.planning or not state.plan_wanted or now < state.planned_us + us(gap_s):
        return None
    state.planning, state.plan_wanted, state.planned_us, state.again_us = True, False, now, 0
    return Plan(take_snapshot(state, now, half_life_s))


def planned(turn: Turn, event: Planned) -> None:
    turn.state.planning = False
    if event.error:
        turn.note("PassFailed", event.error)
        return
    if event.late:
        turn.note("PassLate", event.late)
    decisions = event.decisions
    turn.state.unmet.clear()
    moves, victims = _valid(turn, [*decisions.resizes, *decisions.starts], decisions.preempts)
    for victim in victims:
        _preempt(turn, victim)
    _commit(turn, moves, event.nonce)
    if decisions.again_in_s is not None and 0 <= decisions.again_in_s <= LONGEST_S:  # so for what is no number
        turn.state.again_us = max(turn.state.planned_us + us(decisions.again_in_s), turn.now + us(AGAIN_S))
    binder = Binder(turn.state, turn.now, decisions.waits)
    for wait in decisions.waits:
        _explain(turn, binder.binding(wait))


def _valid(
    turn: Turn, moves: list[Start | Resize], preempts: tuple[Preempt, ...]
) -> tuple[list[Start | Resize], list[Preempt]]:
    """The moves that hold together, and the preemptions they need. A move may rest on others: dropping one may drop
    more."""
    while True:
        movers = Counter(move.job for move in moves)
        victims = [preempt for preempt in preempts if preempt.for_job in movers]
        resized = [move.job for move in moves if isinstance(move, Resize)]
        yielding = frozenset([*(victim.job for victim in victims), *resized])
        taken = Counter(device for move in moves for device in move.devices)
        over = _over_caps(turn, moves)
        if over:
            moves = [move for move in moves if move.job not in over]
            continue
        stale = {
            move.job: why
            for move in moves
            if (why := _stale(turn, move, [v for v in victims if v.for_job == move.job], yielding, taken, movers))
            is not None
        }
        if not stale:
            return moves, victims
        for job, why in stale.items():
            turn.note("StartDropped", why, job=job)
        turn.replan()
        moves = [move for move in moves if move.job not in stale]


def _over_caps(turn: Turn, moves: list[Start | Resize]) -> list[int]:
    """Jobs whose moves would be too much after all moves before them. Their reason says which cap it is.
    """
    state, over = turn.state, []
    use = use_of(state)
    for move in moves:
        job = state.jobs.get(move.job)
        if job is None:
            continue
        if isinstance(move, Resize):
            found = _too_much_to_resize(state, use, job, move)
        else:
            found = too_much(state, use, job, move.devices)
        if found is None:
            use.take(job, move.devices)
            use.running.update(holders(job) if isinstance(move, Start) else ())
        else:
            over.append(move.job)
            _explain(turn, Wait(move.job, *found))
    return over


def _too_much_to_resize(state: State, use: Use, job: Job, move: Resize) -> tuple[str, str] | None:
    """Who gives devices up while it trains is never too much, however low a cap has become. Else a live resize holds
    old and new devices at once; where that is too much, the job stops first, unless that would cost all its work.
    """
    found = too_much(state, use, job, move.devices, more=0)
    if found is None:
        return None
    own = {lease.device for lease in state.leases.values() if lease.job == job.id}
    attempt = state.open_attempt(job.id)
    if attempt is not None and changes_live(state, attempt):
        if own.issuperset(move.devices):
            return None
        if job.spec.checkpoint is None:
            return found
    found = too_much(state, use, job, move.devices, own, more=0)
    if found is None:
        state.stops_to_change[job.id] = job.last_attempt
    return found


def _stale(
    turn: Turn, move: Start | Resize, victims: list[Preempt], yielding: frozenset[int], taken: "Counter[str]",
    movers: "Counter[int]",
) -> str | None:
    """Why this move no longer holds, or None."""
    state = turn.state
    job = state.jobs.get(move.job)
    if isinstance(move, Resize):
        if not _running(state, move.job) or job is None or job.wanted is not Wanted.RUN:
            return "the job is no longer running"
        if state.proposed(job.id, job.last_attempt) is not None:
            return "the job is changing its shape"
    elif job is None or job.state is not JobState.QUEUED or job.wanted is not Wanted.RUN:
        return "the job is no longer waiting"
    elif job.retry_at_us > turn.now:
        return "the job backs off"
    if movers[move.job] > 1:
        return "the answer moves the job twice"
    if not move.devices or len(set(move.devices)) != len(move.devices):
        return "the answer names no device, or one twice"
    if any(taken[device] > 1 for device in move.devices):
        return "the answer gives a device to two jobs"
    if move.plan is not None and not is_plan(move.plan):
        return "the plan's stages do not follow each other, or have no ranks"
    if len(move.devices) != (move.plan.world_size if move.plan is not None else 1):
        return "the plan needs another number of devices"
    if move.plan is not None and not job.spec.allows(len(move.devices)) and len(move.devices) != size_of(state, job):
        return f"the job may not have {len(move.devices)} device(s)"
    for victim in victims:
        if not _running(state, victim.job):
            return f"job {victim.job} is no longer running"
    closed = closed_nodes(state, job, turn.now)
    for device in move.devices:
        if (why := unavailable(state, device, job.id, yielding)) is not None:
            return why
        if state.devices[device].node in closed:
            return f"node {state.devices[device].node} is reserved"
    return None


def _running(state: State, job: int) -> bool:
    attempt = state.open_attempt(job)
    return attempt is not None and attempt.state is AttemptState.RUNNING


def _preempt(turn: Turn, victim: Preempt) -> None:
    job, other = turn.state.jobs[victim.for_job], turn.state.jobs[victim.job]
    why = f"preempted for job {job.id} (priority {priority_of(turn.state, job)})"
    stop_attempt(turn, other, EndCause.PREEMPTED, grace_s=other.spec.grace_s, save=True, why=why)


def _commit(turn: Turn, moves: list[Start | Resize], nonce: str) -> None:
    """Resizes first, live where that can be. One may wait for the devices that another gives up, but never in a circle:
    what would wait for each other goes through checkpoints. Then starts begin."""
    left = [Start(move.job, move.devices, move.plan, move.step_time_s) for move in moves if isinstance(move, Resize)]
    while (live := next((start for start in left if can_change(turn.state, start)), None)) is not None:
        left.remove(live)
        propose(turn, live, nonce)
    for start in left:
        _stop_to_resize(turn, start, nonce)
    for move in moves:
        if isinstance(move, Start):
            begin(turn, move, nonce)


def _stop_to_resize(turn: Turn, move: Start, nonce: str) -> None:
    """It stops, and begins anew when the job's last member is gone."""
    assert move.plan is not None
    job = turn.state.jobs[move.job]
    turn.state.resizing[job.id] = (move, nonce)
    why = f"resized to {len(move.devices)} device(s), {move.plan.shape}{move.plan.saving}"
    stop_attempt(turn, job, EndCause.RESIZED, grace_s=job.spec.grace_s, save=True, why=why)


def _explain(turn: Turn, wait: Wait) -> None:
    """Reasons change with every pass; only a new code is worth a commit."""
    state = turn.state
    job = state.jobs.get(wait.job)
    if job is not None and out_of_range(state, job):
        state.unmet[job.id] = wait
    if job is None or job.state is not JobState.QUEUED or job.wanted is not Wanted.RUN:
        return
    if wait.start_in_s is None or not 0 <= wait.start_in_s <= LONGEST_S:  # so for what is no number
        state.start_at_us.pop(job.id, None)
    else:
        state.start_at_us[job.id] = turn.now + us(wait.start_in_s)
    if job.reason_code != wait.code:
        turn.put(replace(job, reason_code=wait.code, reason=wait.text, reason_since_us=turn.now))
        turn.note("Waiting", f"{wait.code}: {wait.text}", job=job.id)
    elif job.reason != wait.text:
        state.jobs[job.id] = replace(job, reason=wait.text)
