"""What nodes say of their own health: a node that is not well gets no new work until it is well again.

Health is a value that every beat repeats, so that lost, repeated and late beats are harmless. A device that is not well
is just not offered. A node that is not is drained, within a budget: a check that is itself wrong must not empty the
cluster. What runs goes on, and a drain that a person made is never touched.
"""

from dataclasses import replace

from scheduler.core.events import NodeHeard
from scheduler.core.records import Drain
from scheduler.core.settings import CoreSettings
from scheduler.core.state import State
from scheduler.core.turn import Turn
from scheduler.protocol.messages import Health

ACTOR = "health-check"
MAX_REASON = 500


def take_health(turn: Turn, beat: NodeHeard, health: Health) -> None:
    """Of a node that is known in its present session."""
    known = turn.state.health_beat.get(beat.node)
    if known is not None and known[0] == beat.session and beat.beat < known[1]:
        return
    turn.state.health_beat[beat.node] = beat.session, beat.beat
    _judge_devices(turn, beat.node, health.devices)
    _judge_node(turn, beat.node, health.node[:MAX_REASON])


def drain_budget(state: State, settings: CoreSettings) -> int:
    """How many nodes may be drained automatically at once."""
    return max(1, int(settings.auto_drain_share * len(state.nodes)))


def automatic_drains(state: State) -> int:
    return sum(drain.automatic for drain in state.drains.values())


def _judge_devices(turn: Turn, node: str, reasons: dict[str, str]) -> None:
    for id, said in reasons.items():
        reason = said[:MAX_REASON]
        device = turn.state.devices.get(id)
        if device is None or device.node != node or (device.healthy, device.reason) == (not reason, reason):
            continue
        if not reason and not turn.may_note("DeviceWell"):
            continue  # it goes to and fro: the good news can wait, and comes with every beat
        turn.put(replace(device, healthy=not reason, reason=reason))
        kind, text = ("DeviceUnwell", reason) if reason else ("DeviceWell", "can be used again")
        if turn.note(kind, f"device {id}: {text}", actor=ACTOR, node=node, data={"device": id}):
            turn.replan()


def _judge_node(turn: Turn, node: str, reason: str) -> None:
    state = turn.state
    name = f"node/{node}"
    drain = state.drains.get(name)
    if drain is not None and not drain.automatic:
        state.undrained.pop(node, None)
    elif not reason:
        state.undrained.pop(node, None)
        if drain is not None and turn.may_note("NodeWell"):
            _resume(turn, node, drain)
    elif drain is not None:
        if drain.reason != reason:
            _drain(turn, node, replace(drain, reason=reason))
    elif automatic_drains(state) < drain_budget(state, turn.settings):
        state.undrained.pop(node, None)
        _drain(turn, node, Drain(name=name, reason=reason, by=ACTOR, since_us=turn.now, automatic=True))
    elif state.undrained.get(node) != reason:
        state.undrained[node] = reason
        limit = drain_budget(state, turn.settings)
        text = f"{reason}; not drained: {limit} of {len(state.nodes)} nodes, the most that may be, are already"
        turn.note("DrainBudgetSpent", text, actor=ACTOR, node=node)


def _drain(turn: Turn, node: str, drain: Drain) -> None:
    turn.put(drain)
    turn.note("NodeUnwell", f"drained: {drain.reason}", actor=ACTOR, node=node, data={"since_us": drain.since_us})
    turn.replan()


def _resume(turn: Turn, node: str, drain: Drain) -> None:
    del turn.state.drains[drain.name]
    turn.out.gone_records.append((drain.kind, drain.name))
    turn.note("NodeWell", "it is well again and takes work", actor=ACTOR, node=node)
    turn.replan()
