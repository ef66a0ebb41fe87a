"""`step(state, event, now) -> effects`: the only way the state changes."""

from scheduler.core import edits, estimates, nodes, orders, passes, reports, requests, timers
from scheduler.core.dependencies import follow_ends
from scheduler.core.effects import Effects
from scheduler.core.entities import AttemptState, JobState
from scheduler.core.events import (
    Cancel,
    Change,
    CoreEvent,
    Erase,
    Estimated,
    Hold,
    NodeHeard,
    NodeHello,
    NodeReports,
    Order,
    Planned,
    Release,
    Remark,
    Submit,
    Tick,
    Write,
)
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.turn import Turn


def step(state: State, event: CoreEvent, now: int, settings: CoreSettings) -> Effects:
    """Take one event at one moment (microseconds, never backwards) and say what is to be done about it."""
    turn = Turn(state, now, settings)
    match event:
        case Submit():
            requests.submit(turn, event)
        case Cancel():
            requests.cancel(turn, event)
        case Hold():
            requests.hold(turn, event)
        case Release():
            requests.release(turn, event)
        case Order():
            orders.order(turn, event)
        case Change():
            edits.change(turn, event)
        case Write():
            edits.write(turn, event)
        case Erase():
            edits.erase(turn, event)
        case Remark():
            turn.note(event.kind, event.message, data=dict(event.data))
        case NodeHello():
            nodes.hello(turn, event)
        case NodeReports():
            _node_reports(turn, event)
        case NodeHeard():
            nodes.heard(turn, event)
        case Planned():
            passes.planned(turn, event)
        case Estimated():
            estimates.keep(turn, event)
        case Tick():
            timers.tick(turn)
            _forget_old_jobs(state, settings)
    follow_ends(turn)
    return turn.out


def _node_reports(turn: Turn, event: NodeReports) -> None:
    if turn.state.said_hello.get(event.node) != event.session:
        return
    nodes.heard(turn, NodeHeard(node=event.node, session=event.session))
    for report in event.reports:
        reports.take_report(turn, event.node, report)


def _forget_old_jobs(state: State, settings: CoreSettings) -> None:
    """Keep memory bounded: the database has the rest of history."""
    done = [job.id for job in state.jobs.values() if job.state is JobState.DONE]
    for job_id in done[: max(0, len(done) - settings.jobs_kept)]:
        keys = [key for key in state.attempts if key[0] == job_id]
        members = [key for key in state.members if key[0] == job_id]
        if any(state.attempts[key].state is not AttemptState.ENDED for key in keys):
            continue
        if any(state.members[key].gone_us is None for key in members):
            continue
        for member_key in members:
            del state.members[member_key]
            state.reports.pop(member_key, None)
        for key in keys:
            del state.attempts[key]
            for generation in state.generations_of(*key):
                del state.generations[(*key, generation.number)]
        state.known.pop(state.jobs.pop(job_id).spec_key, None)
        for estimate_key in [key for key in state.estimates if key[0] == job_id]:
            del state.estimates[estimate_key]
        for book in (state.start_at_us, state.changed_us, state.stops_to_change):
            book.pop(job_id, None)
