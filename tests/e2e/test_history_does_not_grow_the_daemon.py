"""A daemon over a long history: bounded memory, quick starts, pages that work, and an end to what it keeps."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from cluster import PATIENCE_S, Cluster

from scheduler.core.effects import Effects
from scheduler.core.entities import Attempt, AttemptKind, AttemptState, Event, Job, JobState, Result
from scheduler.core.records import Account
from scheduler.protocol.spec import JobSpec
from scheduler.store.repository import Repository
from scheduler.store.rows import TABLES, to_row

MAX_BYTES = 500_000_000
JOB = Job(
    id=1, spec=JobSpec(name="old", entrypoint="m:f", workdir="/w", env={"A": "x" * 200}), user="eva", priority=50,
    submitted_us=1, state=JobState.DONE, result=Result.COMPLETED, ended_us=3, last_attempt=1,
)  # fmt: skip
ATTEMPT = Attempt(job=1, number=1, kind=AttemptKind.TRAIN, created_us=2, state=AttemptState.ENDED, ended_us=3)
ENDED = Event(seq=1, time_us=3, kind="Ended", actor="jctd", message="completed", job=1)
BATCH = 5_000


def fill(cluster: Cluster, jobs: int) -> None:
    """The database of a daemon that has seen so many jobs end."""
    cluster.daemon_folder.mkdir(parents=True, mode=0o700)
    store = Repository.open(f"sqlite:///{cluster.daemon_folder / 'jctd.db'}")
    store.commit(Effects(rows=[Account(team="default", user="eva", gpu_s=3600.0)]))
    for first in range(1, jobs + 1, BATCH):
        ids = range(first, min(first + BATCH, jobs + 1))
        with store.transaction() as connection:
            connection.execute(TABLES[Job].insert(), [to_row(replace(JOB, id=id)) for id in ids])
            connection.execute(TABLES[Attempt].insert(), [to_row(replace(ATTEMPT, job=id)) for id in ids])
            events = [replace(ENDED, seq=2 * id - n, job=id) for id in ids for n in (1, 0)]
            connection.execute(TABLES[Event].insert(), [to_row(event) for event in events])
    store.close()


@pytest.mark.parametrize("jobs", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_b09_memory_is_bounded_whatever_has_ended_and_every_page_is_there(tmp_path, jobs):
    cluster = Cluster(tmp_path / "state")
    fill(cluster, jobs)
    cluster.begin(a="fake:1")
    try:
        id = cluster.submit(work={"total": "1 steps"}, gpus=1)
        cluster.until_state(id, "COMPLETED")
        seen, cursor = [], None
        while cursor is not None or not seen:
            page = cluster.client.call("GET", "jobs", {"all": "true", "limit": 1000, "cursor": cursor}).json()
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next"]
        assert seen == list(range(id, 0, -1))
        assert cluster.job(1)["state"] == "COMPLETED"
        assert [event["kind"] for event in cluster.events(1)] == ["Ended", "Ended"]
        environment = {**os.environ, "JCT_URL": cluster.url, "JCT_TOKEN": str(cluster.token())}
        for arguments in (["ls"], ["ls", "-a", "--limit", "5"], ["show", "1"], ["usage"]):
            command = [sys.executable, "-c", "from scheduler.cli.main import main; main()", *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 0, done.stderr
        assert cluster.daemon is not None
        used = psutil.Process(cluster.daemon.pid).memory_info().rss
        print(f"{jobs} finished jobs: {used / 1e6:.0f} MB in the daemon")
        assert used < MAX_BYTES
    finally:
        cluster.stop()


def test_a_daemon_that_is_to_forget_does_so_and_keeps_the_sums(tmp_path):
    cluster = Cluster(tmp_path / "state")
    fill(cluster, 1_000)
    cluster.start_daemon("--retention", "30d", "--ended-in-memory", "100")
    try:
        cluster.connect()
        cluster.eventually(lambda: cluster.client.jobs(None, all="true")[0] == [], "all is forgotten")
        cluster.eventually(
            lambda: "Forgot" in [event["kind"] for event in cluster.client.events("events")], "and it says so"
        )
        usage = cluster.client.call("GET", "usage").json()["rows"]
        assert [(row["user"], row["gpu_s"]) for row in usage] == [("eva", 3600.0)]
        assert cluster.submit(work={"total": "1 steps"}, gpus=1) == 1_001
        cluster.cancel_all()
    finally:
        cluster.stop()
