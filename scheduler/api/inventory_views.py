"""What a node and a device look like from outside."""

from scheduler.api.measured_views import device_measured, node_measured
from scheduler.api.shapes import DeviceView, DrainView, NodeView
from scheduler.api.times import rfc3339, seconds
from scheduler.api.views import Moment
from scheduler.core.entities import LeaseState
from scheduler.core.records import Drain
from scheduler.core.reserved import drain_of


def node_views(moment: Moment) -> list[NodeView]:
    state = moment.state
    busy = {lease.device for lease in state.leases.values()}
    views = []
    for node in sorted(state.nodes.values(), key=lambda node: node.id):
        devices = [device for device in state.devices.values() if device.node == node.id]
        heard_us = state.heard_us.get(node.id)
        views.append(
            NodeView(
                id=node.id,
                state=node.state,
                address=node.address,
                devices=len(devices),
                free=sum(
                    device.healthy and device.id not in busy and drain_of(state, device.id) is None
                    for device in devices
                ),
                last_seen_s=seconds(max(0, moment.now_us - heard_us)) if heard_us is not None else None,
                drain=_drain_view(state.drains.get(f"node/{node.id}")),
                measured=node_measured(state.sensed.get(node.id), moment.now_us),
            )
        )
    return views


def _drain_view(drain: Drain | None) -> DrainView | None:
    if drain is None:
        return None
    return DrainView(reason=drain.reason, by=drain.by, since=rfc3339(drain.since_us))


def device_views(moment: Moment, team: str | None) -> list[DeviceView]:
    """team: whose jobs may be named; None for all."""
    state = moment.state
    order = [LeaseState.PROMISED, LeaseState.HELD, LeaseState.QUARANTINED]
    lease_of = {x.device: x for x in sorted(state.leases.values(), key=lambda lease: order.index(lease.state))}
    samples = {
        sample.id: (known, sample)
        for node, known in state.sensed.items()
        for sample in known.telemetry.devices
        if (its := state.devices.get(sample.id)) is not None and its.node == node
    }
    seen = {id for id, job in state.jobs.items() if team in (None, job.spec.team)}
    views = []
    for device in sorted(state.devices.values(), key=lambda device: (device.node, device.index)):
        lease, node = lease_of.get(device.id), state.nodes.get(device.node)
        job = state.jobs.get(lease.job) if lease else None
        drain = drain_of(state, device.id)
        if lease:
            shown = lease.state.lower()
        elif not device.healthy:
            shown = "unhealthy"
        elif drain is not None:
            shown = "drained"
        else:
            shown = "free" if node is not None and node.state == "UP" else "away"
        views.append(
            DeviceView(
                id=device.id,
                node=device.node,
                kind=device.kind,
                index=device.index,
                name=device.name,
                memory_bytes=device.memory_bytes,
                state=shown,
                reason=device.reason,
                job=job.id if job is not None and team in (None, job.spec.team) else None,
                drain=_drain_view(drain),
                measured=device_measured(samples.get(device.id), moment.now_us, seen, whole=team is None),
            )
        )
    return views
