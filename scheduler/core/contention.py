"""Devices that somebody else slows down, as their nodes say: passes avoid them, and people are told."""

import math

from scheduler.core.entities import LeaseState, NodeState
from scheduler.core.events import NodeHeard
from scheduler.core.state import Contested, State
from scheduler.core.turn import Turn
from scheduler.durations import format_duration
from scheduler.protocol.slowdown import Slowdown
from scheduler.protocol.telemetry import Telemetry

MOST, LEAST = 100.0, 1.1
MAX_REASON = 500


def take_slowdowns(turn: Turn, beat: NodeHeard, telemetry: Telemetry, before: Telemetry | None) -> None:
    """From a node's newest sample; `before` is the one that it replaces."""
    found = {sample.id: sample.slowdown for sample in telemetry.devices}
    known = [id for id, contested in turn.state.contested.items() if contested.node == beat.node]
    for id in dict.fromkeys([*known, *found]):
        device = turn.state.devices.get(id)
        if device is None:
            turn.state.contested.pop(id, None)
        elif device.node == beat.node and (id in found or not telemetry.left_out):
            _take(turn, id, found.get(id))
    if telemetry.fallback != (before.fallback if before is not None else ""):
        _tell_fallback(turn, beat.node, telemetry)


def calm_node(turn: Turn, node: str) -> None:
    """Nothing is known of its devices any more."""
    for id in [id for id, contested in turn.state.contested.items() if contested.node == node]:
        del turn.state.contested[id]


def slowdown_of(state: State, device: str) -> float:
    """What a policy weighs: to a tenth, so that a prediction that sways is no news. Agents that share a machine compete
    for the same cores: to go from one to another helps nobody."""
    contested = state.contested.get(device)
    if contested is None or (state.devices[device].kind == "cpu" and _shares_machine(state, contested.node)):
        return 1.0
    return max(1.0, round(contested.ratio, 1))


def _shares_machine(state: State, node: str) -> bool:
    boot = state.nodes[node].boot
    return any(
        other.boot == boot for other in state.nodes.values() if other.id != node and other.state is not NodeState.LOST
    )


def _take(turn: Turn, id: str, slowdown: Slowdown | None) -> None:
    state = turn.state
    known = state.contested.get(id)
    if slowdown is None or not slowdown.contested or not math.isfinite(slowdown.ratio):
        if known is not None:
            del state.contested[id]
            lasted = format_duration((turn.now - known.since_us) / 1e6)
            how = "nobody slows it any more" if slowdown is not None else "nothing is known of a neighbour any more"
            _note(turn, "DeviceCalm", id, f"{how}; it lasted {lasted}")
        return
    ratio = min(MOST, max(1.0, slowdown.ratio))
    if known is None and ratio < LEAST:  # it was more, and is about to end
        return
    since_us = known.since_us if known is not None else turn.now
    state.contested[id] = Contested(state.devices[id].node, since_us, ratio)
    if known is None:
        how = "predicted from counters" if slowdown.source == "forest" else "by step times"
        _note(turn, "DeviceContested", id, f"slowed {ratio:.2f}x by a neighbour, {how}")


def _note(turn: Turn, kind: str, id: str, text: str) -> None:
    """About the job on it as well, if there is one."""
    device = turn.state.devices[id]
    held = (lease for lease in turn.state.leases_on(id) if lease.state is LeaseState.HELD)
    job = next((lease.job for lease in held if lease.job in turn.state.jobs), None)
    if turn.note(kind, f"GPU {device.index}: {text}", job=job, node=device.node, data={"device": id}):
        turn.replan()


def _tell_fallback(turn: Turn, node: str, telemetry: Telemetry) -> None:
    if telemetry.fallback:
        turn.note("PredictorFellBack", telemetry.fallback[:MAX_REASON], node=node)
    else:
        turn.note("PredictorRestored", telemetry.predictor[:MAX_REASON], node=node)
