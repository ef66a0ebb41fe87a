"""How devices come free, and to whom they then go."""

from dataclasses import replace

from scheduler.core.beginnings import start_if_gathered
from scheduler.core.entities import Generation, GenerationState, LeaseState, Member
from scheduler.core.turn import Turn


def free_device(turn: Turn, member: Member) -> None:
    """A member is gone: its lease closes, and a promise on the device becomes HELD in the same transaction."""
    for lease in turn.state.leases_of(member.job, member.attempt):
        if lease.member != member.number:
            continue
        turn.put(replace(lease, state=LeaseState.CLOSED, closed_us=turn.now))
        if lease.state is not LeaseState.PROMISED:
            _keep_promise(turn, lease.device)
    turn.replan()


def drop_generation(turn: Turn, proposed: Generation) -> None:
    """It will not be. Newcomers that were never started never were; those that were have to be stopped."""
    state = turn.state
    members = state.members_of(proposed.job, proposed.attempt)
    never_started = [member for member in members if member.gone_us is None and state.awaits_device(member)]
    turn.put(replace(proposed, state=GenerationState.DROPPED))
    drop_members(turn, never_started)


def drop_members(turn: Turn, members: list[Member]) -> None:
    """Members that were never started never were; their devices go on to whom they were promised."""
    for member in members:
        gone = replace(member, gone_us=turn.now)
        turn.put(gone)
        free_device(turn, gone)


def _keep_promise(turn: Turn, device: str) -> None:
    for lease in turn.state.leases_on(device):
        if lease.state is LeaseState.PROMISED:
            turn.put(replace(lease, state=LeaseState.HELD))
            start_if_gathered(turn, lease.job, lease.attempt)
