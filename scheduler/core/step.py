"""`step(state, event, now) -> effects`: the only way the state changes."""

from scheduler.core import edits, estimates, nodes, orders, passes, reports, requests, timers
from scheduler.core.dependencies import follow_ends
from scheduler.core.effects import Effects
from scheduler.core.events import (
    Cancel,
    Change,
    CoreEvent,
    Erase,
    Estimated,
    Forgotten,
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
from scheduler.core.forgetting import forget_keys, forget_old_jobs
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.turn import Turn


def step(state: State, event: CoreEvent, now: int, settings: CoreSettings) -> Effects:
    """Take one event at one moment (microseconds, never backwards) and say what is to be done about it."""
    turn = Turn(state, now, settings, speaker=_speaker(event))
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
        case Forgotten():
            forget_keys(state, event.jobs)
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
            forget_old_jobs(state, now, settings)
    follow_ends(turn)
    return turn.out


def _speaker(event: CoreEvent) -> str:
    """Whose message it is, where it is an agent's."""
    match event:
        case NodeHello():
            return event.public_key
        case NodeReports() | NodeHeard():
            return event.node
    return ""


def _node_reports(turn: Turn, event: NodeReports) -> None:
    if turn.state.said_hello.get(event.node) != event.session:
        return
    nodes.heard(turn, NodeHeard(node=event.node, session=event.session))
    for report in event.reports:
        reports.take_report(turn, event.node, report)
