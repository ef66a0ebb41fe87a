"""One job over two nodes that know each other only through a router: which addresses it uses, and a link that fails."""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from gang import Site, curve, log, member_pids, plan
from network import Network, Node, network

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from scheduler.protocol.spec import AttemptSpec
from worker.launcher import Launched

ESTABLISHED = "01"
SHAPE = plan((0, 3, 6))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Network]:
    made = network()
    try:
        entered = made.__enter__()
    except RuntimeError as error:
        pytest.skip(str(error))
    yield entered
    made.__exit__(None, None, None)


def start_shim(node: Node, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "worker.shim", "--folder", str(folder), "--host", node.address]
    with open(folder / "shim.log", "ab") as output:
        return subprocess.Popen(
            node.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "JCT_NONCE": "two-nodes"},
        )


class Job:
    """One attempt with a member on each node; what one shim tells of the store is passed on to the other."""

    def __init__(self, folder: Path, nodes: Network, spec: AttemptSpec, shape: ParallelPlan) -> None:
        self.halves = [
            Launched(folder / node.name / "1.1", spec, shape, partial(start_shim, node), here=(member,))
            for member, node in enumerate((nodes.a, nodes.b))
        ]

    @property
    def pilots(self) -> Launched:
        return self.halves[1]

    def wait(self, until: Callable[[], bool], timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not until():
            assert time.monotonic() < deadline, [half.reports for half in self.halves]
            for half in self.halves:
                half.poll(0.02)
            for report in self.pilots.reports.values():
                self.halves[0].pass_store(report)

    def steps(self) -> int:
        return max((report.step or 0 for report in self.pilots.reports.values()), default=0)

    def is_gone(self) -> bool:
        return all(half.is_gone() for half in self.halves)

    def close(self) -> None:
        for half in self.halves:
            half.hang_up()
            half.shim.wait(30)


@pytest.fixture
def launch(nodes: Network, tmp_path: Path, site: Site) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(**spec: object) -> Job:
        made.append(Job(tmp_path, nodes, site.spec(directory=None, nonce="two-nodes", **spec), SHAPE))
        return made[-1]

    yield start
    nodes.link(works=True)
    for job in made:
        for half in job.halves:
            if not half.is_gone():
                half.stop(0)
        job.wait(job.is_gone)
        job.close()


def local_addresses(pid: int) -> set[str]:
    """Of the established TCP connections of a process's network namespace."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    found = {fields[1].partition(":")[0] for fields in lines if fields[3] == ESTABLISHED}
    return {socket.inet_ntoa(struct.pack("<I", int(text, 16))) for text in found}


def test_b24_every_connection_leaves_by_the_interface_that_leads_to_the_other_node(
    launch: Callable[..., Job], nodes: Network
) -> None:
    job = launch(entrypoint="awkward:slow")
    job.wait(lambda: job.steps() >= 3)
    for half, node in zip(job.halves, (nodes.a, nodes.b), strict=True):
        (pid,) = member_pids(half).values()
        assert local_addresses(pid) == {node.address}


def test_a_link_that_is_gone_for_three_seconds_costs_time_and_nothing_else(
    launch: Callable[..., Job], nodes: Network, site: Site
) -> None:
    job = launch(entrypoint="awkward:slow", arguments={"steps": 100})
    job.wait(lambda: job.steps() >= 3)
    nodes.link(works=False)
    cut = time.monotonic()
    job.wait(lambda: time.monotonic() - cut >= 3)
    assert job.steps() < 100
    nodes.link(works=True)
    job.wait(job.is_gone)
    assert job.pilots.pilot.cause is Cause.FINISHED, log(job.pilots, 1)
    alone = site.launch(plan((0, 6)), site.spec(directory=None, arguments={"steps": 100}))
    alone.wait()
    assert curve(job.pilots) == curve(alone)


def test_a_link_that_is_gone_for_good_ends_both_halves_as_lost_peers(
    launch: Callable[..., Job], nodes: Network
) -> None:
    job = launch(entrypoint="awkward:slow")
    job.wait(lambda: job.steps() >= 3)
    nodes.link(works=False)
    job.wait(job.is_gone, timeout_s=60)
    assert [half.reports[member].cause for member, half in enumerate(job.halves)] == [Cause.PEER_LOST] * 2
