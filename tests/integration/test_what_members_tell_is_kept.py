"""What a pilot says beside its training, such as a save that failed, becomes an event of the job: once."""

import asyncio
from pathlib import Path

from msgspec.structs import replace
from small_cluster import SmallCluster

from scheduler.core.entities import Event
from scheduler.core.events import NodeReports
from scheduler.protocol.messages import Report
from scheduler.protocol.spec import JobSpec


def test_a_failed_save_is_an_event(tmp_path: Path) -> None:
    cluster = SmallCluster(tmp_path)
    spec = JobSpec(name="n", entrypoint="a:b", workdir="/")
    job = asyncio.run(cluster.submit(spec, "key", "someone", None))
    while not (found := [report for report in cluster.state.reports.values() if report.step]):
        cluster.advance(1)
    (said,) = found
    failed = "checkpoint of step 5 failed: No space left on device"
    for more, message in enumerate(("", failed, failed, ""), 1):
        _tell(cluster, replace(said, seq=said.seq + more, message=message))
    told = [event.message for event in _events(cluster, job) if event.kind == "Told"]
    assert told == [failed]
    cluster.close()


def _tell(cluster: SmallCluster, report: Report) -> None:
    node = cluster.state.members[report.key].node
    session = cluster.state.said_hello[node]
    cluster._step(NodeReports(node=node, session=session, reports=(report,)))


def _events(cluster: SmallCluster, job: int) -> list[Event]:
    return asyncio.run(cluster.events(job, 0, 1000))
