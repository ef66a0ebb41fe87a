"""What was used: device-seconds by team and user, in all, lost, and of late with a half-life."""

from dataclasses import replace

from scheduler.core.entities import Attempt, AttemptKind, AttemptState, EndCause, Job
from scheduler.core.records import Account
from scheduler.core.state import State
from scheduler.core.turn import Turn


def charge(turn: Turn, job: Job, attempt: Attempt) -> Job:
    """Book an attempt that has ended; the job remembers how long it has run."""
    if attempt.starting_us is None or attempt.ended_us is None:
        return job
    seconds = (attempt.ended_us - attempt.starting_us) / 1e6
    devices = len(turn.state.members_of(attempt.job, attempt.number))
    key = job.spec.team, job.user
    old = turn.state.accounts.get(key) or Account(team=key[0], user=key[1], recent_us=turn.now)
    turn.put(
        replace(
            old,
            gpu_s=old.gpu_s + devices * seconds,
            lost_gpu_s=old.lost_gpu_s + devices * lost_s(attempt, job.saved_step),
            recent_gpu_s=decayed(old, turn.now, turn.settings.half_life_s) + devices * seconds,
            recent_us=turn.now,
        )
    )
    if attempt.kind is not AttemptKind.PROBE:
        job = replace(job, ran_us=job.ran_us + attempt.ended_us - attempt.starting_us)
        turn.put(job)
    return job


def lost_s(attempt: Attempt, saved_step: int | None) -> float:
    """Seconds of training whose steps no checkpoint kept, as a share of the steps that the attempt made.

    saved_step: of the newest checkpoint when the attempt had ended. An attempt that has finished has lost nothing.
    """
    if attempt.running_us is None or attempt.ended_us is None or attempt.last_step is None:
        return 0.0
    if attempt.cause is EndCause.FINISHED:
        return 0.0
    begun = attempt.resumed_step or 0
    kept = max(begun, min(saved_step or 0, attempt.last_step))
    made = attempt.last_step - begun
    trained_s = ((attempt.stopping_us or attempt.ended_us) - attempt.running_us) / 1e6
    return trained_s * (attempt.last_step - kept) / made if made > 0 else 0.0


def decayed(account: Account, now: int, half_life_s: float) -> float:
    """Recent device-seconds as they count now."""
    return float(account.recent_gpu_s * 0.5 ** (max(0, now - account.recent_us) / 1e6 / half_life_s))


def shares(state: State, now: int, half_life_s: float) -> dict[str, float]:
    """Of all that was used of late, each team's part; what runs now counts as if it ended now."""
    used: dict[str, float] = {}
    for account in state.accounts.values():
        used[account.team] = used.get(account.team, 0.0) + decayed(account, now, half_life_s)
    for attempt in state.attempts.values():
        if attempt.state is not AttemptState.ENDED and attempt.starting_us is not None:
            team = state.jobs[attempt.job].spec.team
            devices = len(state.members_of(attempt.job, attempt.number))
            used[team] = used.get(team, 0.0) + devices * (now - attempt.starting_us) / 1e6
    whole = sum(used.values())
    return {team: amount / whole if whole else 0.0 for team, amount in used.items()}
