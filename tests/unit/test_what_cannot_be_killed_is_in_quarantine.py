"""A process that SIGKILL does not end: its device is nobody's, its job goes on elsewhere, and in the end it is free."""

import asyncio

import pytest
from small_cluster import SmallCluster

from scheduler.core.entities import AttemptState, LeaseState
from scheduler.core.events import NodeReports
from scheduler.core.invariants import violations
from scheduler.core.state import State
from scheduler.jobfile import parse_document
from scheduler.protocol.messages import Phase, Report

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w"}


@pytest.fixture
def cluster(tmp_path):
    small = SmallCluster(tmp_path)
    yield small
    small.close()


def submit(cluster: SmallCluster, **fields) -> int:
    return asyncio.run(cluster.submit(parse_document({**JOB, **fields}), "k", "eva", None))


def states(state: State, device: str) -> list[LeaseState]:
    return [lease.state for lease in state.leases.values() if lease.device == device]


def report(cluster: SmallCluster, job: int, phase: Phase, seq: int) -> None:
    attempt = cluster.state.jobs[job].last_attempt
    member = cluster.state.members[job, attempt, 0]
    said = Report(job=job, attempt=attempt, member=0, seq=seq, phase=phase)
    session = cluster.state.said_hello[member.node]
    cluster._step(NodeReports(node=member.node, session=session, reports=(said,)))


def test_a_stuck_device_is_kept_back_until_its_process_is_gone(cluster):
    id = submit(cluster, gpus=1, work={"total": "100000 steps"})
    cluster.advance(5)
    number = cluster.state.jobs[id].last_attempt
    device = cluster.state.members[id, number, 0].device
    waiting = submit(cluster, gpus=4, priority=900, work={"total": "5 steps"})
    asyncio.run(cluster.cancel(id, "eva", ""))
    agents = cluster._agents
    node = cluster.state.members[id, number, 0].node
    cluster._agents = [agent for agent in agents if agent.node != node]  # its node says only what is said here
    report(cluster, id, Phase.STUCK, 10**9)
    assert cluster.state.attempts[id, number].state is AttemptState.ENDED
    assert str(cluster.state.jobs[id].result) == "CANCELLED"
    assert states(cluster.state, device) == [LeaseState.QUARANTINED]
    assert violations(cluster.state) == []
    again = cluster.repository.load()
    assert states(again, device) == [LeaseState.QUARANTINED]
    small = submit(cluster, gpus={"min": 1, "max": 4}, priority=950, work={"total": "5 steps"})
    for _ in range(10):
        cluster.advance(1)
        assert violations(cluster.state) == []
    held = [member.device for key, member in cluster.state.members.items() if key[0] in (small, waiting)]
    assert device not in held
    report(cluster, id, Phase.GONE, 2 * 10**9)
    assert LeaseState.QUARANTINED not in states(cluster.state, device)
    cluster._agents = agents
    cluster.advance(60)
    assert str(cluster.state.jobs[waiting].result) == "COMPLETED"
