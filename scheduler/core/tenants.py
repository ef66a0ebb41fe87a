"""Teams, users and queues as a policy sees them: weights, what was used of late, caps, policies."""

from policies.model.cluster import QueueView, TeamView, UserView
from scheduler.core.accounts import shares
from scheduler.core.entities import JobState
from scheduler.core.records import Team
from scheduler.core.state import State


def team_views(state: State, now: int, half_life_s: float) -> tuple[TeamView, ...]:
    """Fair share begins once somebody has set a team; then all that use devices or wait for some take part in it."""
    if not state.teams:
        return ()
    used = shares(state, now, half_life_s)
    present = (job.spec.team for job in state.jobs.values() if job.state is not JobState.DONE)
    teams = [state.teams.get(name) or Team(name=name) for name in dict.fromkeys([*state.teams, *used, *present])]
    whole = sum(team.weight for team in teams)
    return tuple(
        TeamView(team.name, team.weight, team.max_devices, used.get(team.name, 0.0) * whole / team.weight)
        for team in teams
    )


def user_views(state: State) -> tuple[UserView, ...]:
    return tuple(UserView(user.name, user.max_devices) for user in state.users.values())


def queue_views(state: State) -> tuple[QueueView, ...]:
    return tuple(QueueView(queue.name, queue.policy, queue.max_devices) for queue in state.queues.values())
