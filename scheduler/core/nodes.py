"""Nodes: who they are, whether they live, and what they say runs on them when they come back."""

from dataclasses import replace

from scheduler.core.changes import newcomer_ended
from scheduler.core.contention import calm_node, take_slowdowns
from scheduler.core.endings import end_if_gone, stop_attempt
from scheduler.core.entities import Attempt, AttemptState, Device, EndCause, Member, Node, NodeState
from scheduler.core.events import NodeHeard, NodeHello
from scheduler.core.health import take_health
from scheduler.core.leases import free_device
from scheduler.core.reports import take_report
from scheduler.core.restraint import NEWCOMERS, STRANGERS, WINDOW_US, has_room, may_say
from scheduler.core.settings import us
from scheduler.core.state import Role, Sensed
from scheduler.core.turn import Turn
from scheduler.protocol.messages import PROTOCOL_VERSION, Cause, Hello
from scheduler.protocol.plausible_hello import plausible_hello, unusable_name
from scheduler.protocol.plausible_telemetry import plausible_telemetry
from scheduler.protocol.telemetry import Telemetry

MOST_DEVICES = 4_096
"""Of one node. Every pass looks at each."""


def hello(turn: Turn, event: NodeHello) -> None:
    """Begin a node's session: the newest session of one machine supersedes the older one (LIFECYCLE 32)."""
    said = plausible_hello(event.hello)
    if (why := _refusal(turn, said, event.public_key)) is not None:
        turn.out.refusals.append((event.public_key, said.session, why))
        if all(node.public_key != event.public_key for node in turn.state.nodes.values()):
            turn.speaker = STRANGERS
        turn.note("NodeRefused", why, node=said.node if unusable_name(said) is None else None)
        return
    old = turn.state.nodes.get(said.node)
    node = Node(
        id=said.node, public_key=event.public_key, machine=said.machine, address=said.address, boot=said.boot,
        session=said.session, first_seen_us=old.first_seen_us if old else turn.now,
    )
    if node != old:
        turn.put(node)
    if old is None:
        may_say(turn.state.said, NEWCOMERS, turn.now)
    if old is None or turn.state.said_hello.get(said.node) != said.session:
        turn.note("NodeUp", f"{len(said.devices)} devices", node=said.node)
    turn.state.said_hello[said.node] = said.session
    turn.state.labels[said.node] = dict(said.labels)
    turn.state.heard_us[said.node] = turn.now
    _take_devices(turn, said)
    if old is not None and old.boot != said.boot:
        _rebooted(turn, said.node)
    for report in said.reports:
        take_report(turn, said.node, report)
    if old is not None:
        _missing_members(turn, said)
    turn.replan()


def heard(turn: Turn, event: NodeHeard) -> None:
    """A sign of life; a SILENT node is UP again, a LOST one must say Hello first."""
    node = turn.state.nodes.get(event.node)
    if node is None or turn.state.said_hello.get(event.node) != event.session:
        return
    turn.state.heard_us[event.node] = turn.now
    if node.state is not NodeState.UP:
        turn.put(replace(node, state=NodeState.UP))
        turn.note("NodeUp", "heard again", node=node.id)
        turn.replan()
    if event.health is not None:
        take_health(turn, event, event.health)
    if event.telemetry is not None:
        _take_telemetry(turn, event, plausible_telemetry(event.telemetry))


def _take_telemetry(turn: Turn, beat: NodeHeard, telemetry: Telemetry) -> None:
    """In memory only. Late beats change nothing."""
    known = turn.state.sensed.get(beat.node)
    if known is None or known.session != beat.session or known.beat < beat.beat:
        turn.state.sensed[beat.node] = Sensed(beat.session, beat.beat, turn.now, telemetry)
        take_slowdowns(turn, beat, telemetry, known.telemetry if known is not None else None)


def judge_silence(turn: Turn) -> None:
    """SILENT after 15 s, LOST after 60 s; nobody is judged in the first 30 s of a daemon's life (LIFECYCLE 30)."""
    state, cfg = turn.state, turn.settings
    if turn.now < state.started_us + us(cfg.judge_after_s):
        return
    for node in list(state.nodes.values()):
        since = max(state.heard_us.get(node.id, 0), state.started_us + us(cfg.judge_after_s - cfg.node_silent_s))
        quiet = turn.now - since
        if node.state is NodeState.UP and quiet >= us(cfg.node_silent_s):
            node = replace(node, state=NodeState.SILENT)
            turn.put(node)
            turn.note("NodeSilent", f"nothing heard for {quiet / 1e6:.0f} s; no new work goes there", node=node.id)
            turn.replan()
        if node.state is NodeState.SILENT and quiet >= us(cfg.node_lost_s):
            _lost(turn, node, quiet)


def _lost(turn: Turn, node: Node, quiet: int) -> None:
    turn.put(replace(node, state=NodeState.LOST))
    text = f"nothing heard for {quiet / 1e6:.0f} s"
    turn.note("NodeLost", text, node=node.id)
    turn.state.said_hello.pop(node.id, None)
    turn.state.undrained.pop(node.id, None)
    calm_node(turn, node.id)
    for attempt, member in _members_on(turn, node.id):
        job = turn.state.jobs[attempt.job]
        why = f"node {node.id} is lost: {text}"
        if (role := turn.state.role(member)) is Role.NEWCOMER:
            newcomer_ended(turn, turn.state.attempts[attempt.job, attempt.number], why)
        if role is Role.PRESENT and turn.state.open_attempt(job.id) is not None:
            stop_attempt(turn, job, EndCause.NODE_LOST, grace_s=0.0, save=False, why=why)
            end_if_gone(turn, attempt.job, attempt.number)
    turn.replan()


def _refusal(turn: Turn, said: Hello, public_key: str) -> str | None:
    if said.protocol != PROTOCOL_VERSION:
        return f"the agent speaks protocol {said.protocol}, this daemon {PROTOCOL_VERSION}: install the same version"
    if (why := unusable_name(said)) is not None:
        return why
    if len(said.devices) > MOST_DEVICES:
        return f"it offers {len(said.devices)} devices; a node may have {MOST_DEVICES}"
    old = turn.state.nodes.get(said.node)
    if old is not None and old.public_key != public_key:
        return f"node {said.node} is known with another key; give this agent another --node name or its old key"
    if old is not None and old.machine != said.machine:
        return f"node {said.node} is bound to another machine; give this agent another --node name"
    for node in turn.state.nodes.values():
        if node.public_key == public_key and node.id != said.node:
            return f"this key belongs to node {node.id}; every node needs a key of its own"
    for info in said.devices:
        device = turn.state.devices.get(info.id)
        if device is not None and device.node != said.node:
            return f"device {info.id} is already offered by node {device.node}"
    most = turn.settings.new_nodes
    if old is None and not has_room(turn.state.said, NEWCOMERS, turn.now, most):
        minutes = WINDOW_US // 60_000_000
        return f"more than {most} nodes came for the first time within {minutes} minutes: start this agent later"
    return None


def _take_devices(turn: Turn, said: Hello) -> None:
    offered = {info.id for info in said.devices}
    for info in said.devices:
        device = Device(
            id=info.id, node=said.node, kind=info.kind, index=info.index, name=info.name,
            memory_bytes=info.memory_bytes, healthy=info.healthy, reason=info.reason,
        )
        if turn.state.devices.get(info.id) != device:
            turn.put(device)
    for device in list(turn.state.devices.values()):
        if device.node == said.node and device.id not in offered:
            if turn.state.leases_on(device.id):
                turn.put(replace(device, healthy=False, reason="no longer offered by its node"))
            else:
                del turn.state.devices[device.id]
                turn.out.gone_devices.append(device.id)


def _members_on(turn: Turn, node: str) -> list[tuple[Attempt, Member]]:
    """Members that may still be alive on a node, with their attempts."""
    return [
        (turn.state.attempts[member.job, member.attempt], member)
        for member in list(turn.state.members.values())
        if member.node == node and member.gone_us is None
    ]


def _rebooted(turn: Turn, node: str) -> None:
    """Another boot id means that everything of the old boot is gone; nothing is signalled (LIFECYCLE 28)."""
    turn.note("NodeRebooted", "the machine has started anew; what ran there is gone", node=node)
    for attempt, member in _members_on(turn, node):
        if attempt.state is not AttemptState.GATHERING and not turn.state.awaits_device(member):
            _declare_gone(turn, attempt, member, EndCause.NODE_LOST, "its machine was restarted")


def _missing_members(turn: Turn, said: Hello) -> None:
    """The node no longer knows a member that had been running: its shim and folder are gone."""
    known = {(report.job, report.attempt, report.member) for report in said.reports}
    for attempt, member in _members_on(turn, said.node):
        ran = attempt.state in (AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.ENDED)
        ran = ran and turn.state.role(member) is not Role.NEWCOMER
        if ran and (member.job, member.attempt, member.number) not in known:
            _declare_gone(turn, attempt, member, None, "its node no longer knows it")


def _declare_gone(turn: Turn, attempt: Attempt, member: Member, cause: EndCause | None, why: str) -> None:
    gone = replace(
        member, cause=member.cause or Cause.SHIM_LOST, message=member.message or why,
        exited_us=member.exited_us or turn.now, gone_us=turn.now,
    )
    role = turn.state.role(member)
    turn.put(gone)
    free_device(turn, gone)
    attempt = turn.state.attempts[attempt.job, attempt.number]
    job = turn.state.jobs.get(attempt.job)
    if role is Role.NEWCOMER:
        newcomer_ended(turn, attempt, why)
    elif role is Role.PRESENT and job is not None and attempt.state in (AttemptState.STARTING, AttemptState.RUNNING):
        stop_attempt(turn, job, cause, grace_s=turn.settings.blame_s, save=False, why=why)
    end_if_gone(turn, attempt.job, attempt.number)
