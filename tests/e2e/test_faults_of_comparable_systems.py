"""Public failures of comparable systems, tried on a real cluster as their entries in the project's list say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cluster import JOBS, PATIENCE_S, Cluster

from scheduler.core.errors import Code, JctError

JCT = [sys.executable, "-c", "from scheduler.cli.main import main; main()"]
FOREVER = {"total": "100000000 steps"}


def command(cluster: Cluster, *argv: str, **fields: object) -> int:
    work = cluster.state / "work"
    work.mkdir(exist_ok=True)
    job = {"name": "c", "command": [sys.executable, *argv], "workdir": str(work), **fields}
    return int(cluster.client.call("POST", "jobs", body={"job": job}).json()["id"])


def jct(cluster: Cluster, *arguments: str, **environment: str) -> str:
    known = {**os.environ, "JCT_URL": cluster.url, "JCT_TOKEN": str(cluster.token()), **environment}
    done = subprocess.run([*JCT, *arguments], env=known, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_b01_a_restart_of_the_master_keeps_ids_order_priorities_and_clocks_and_shows_the_gap(cluster: Cluster) -> None:
    cluster.begin(a="fake:5")
    running = [cluster.submit(gpus=1, work=FOREVER, priority=90, preemptible=False) for _ in range(5)]
    for id in running:
        cluster.until_state(id, "RUNNING")
    pending = [cluster.submit(gpus=5, work=FOREVER, priority=10 + number % 3) for number in range(20)]

    def kept() -> list[tuple[object, ...]]:
        jobs = [cluster.job(id) for id in running + pending]
        clocks = [[(one["attempt"], one["starting"], one["running"]) for one in job["attempts"]] for job in jobs]
        return [
            (job["id"], job["priority"], job["submitted"], *clock)
            for job, clock in zip(jobs, clocks, strict=True)
        ]

    before = kept()
    cluster.kill_daemon()
    cluster.restart_daemon()
    cluster.eventually(lambda: cluster.nodes_up() == ["a"], "the agent is back")
    assert kept() == before
    assert [cluster.job(id)["state"] for id in running] == ["RUNNING"] * 5
    assert jct(cluster, "events").count("DaemonStarted") == 2


def test_b02_an_agent_that_is_away_past_its_heartbeat_finds_its_ranks_again(cluster: Cluster) -> None:
    cluster.begin(a="cpu:1")
    job = command(cluster, "-c", "import time; time.sleep(10**6)", gpus=1)
    cluster.until_state(job, "RUNNING")
    processes = cluster.processes_of(job)
    cluster.kill_agent("a")
    cluster.eventually(lambda: cluster.nodes_up() == [], "the node is called silent")
    assert cluster.job(job)["state"] == "RUNNING"
    cluster.start_agent("a", "cpu:1")
    cluster.eventually(lambda: cluster.nodes_up() == ["a"], "it is back")
    assert (cluster.processes_of(job), cluster.job(job)["attempt"]) == (processes, 1)
    cluster.client.act(job, "cancel")
    cluster.until_state(job, "CANCELLED")
    cluster.eventually(lambda: cluster.processes_of(job) == [], "nothing is left")
    (folder,) = cluster.state.glob(f"agents/a/attempts/{job}.*")
    cluster.eventually(lambda: (folder / "done").exists(), "its folder is marked as one that may go")


def test_b07_zones_of_daemon_and_shell_shift_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    cluster.begin(a="fake:1")
    file = cluster.state / "job.yaml"
    file.write_text(f"name: later\nentrypoint: paced:job\nworkdir: {JOBS}\ngpus: 1\nwork: {{total: 1 steps}}\n")
    before = datetime.now(UTC)
    zone = {"TZ": "America/Los_Angeles"}
    id = jct(cluster, "submit", "-q", "--begin", "now+5m", str(file), **zone).strip()
    job = json.loads(jct(cluster, "show", id, "--json", **zone))["job"]
    submitted, begin = (datetime.fromisoformat(job[name]) for name in ("submitted", "begin"))
    assert submitted.utcoffset() == begin.utcoffset() == UTC.utcoffset(None)
    assert 290 <= (begin - before).total_seconds() <= 300 + PATIENCE_S
    assert abs((submitted - before).total_seconds()) < PATIENCE_S
    assert job["reason"]["code"] == "BeginTime"
    assert all(seconds >= 0 for seconds in job["ledger"].values())
    assert datetime.fromisoformat(cluster.events(int(id))[0]["time"]).utcoffset() == UTC.utcoffset(None)


def test_b42_exit_codes_and_signals_are_told_apart(cluster: Cluster) -> None:
    cluster.begin(a="cpu:1")
    by_itself = command(cluster, "-c", "import sys; sys.exit(137)", gpus=1)
    ended = cluster.until_state(by_itself, "FAILED")
    assert (ended["exit_code"], ended["signal"]) == (137, None)
    killed = command(cluster, "-c", "import os; os.kill(os.getpid(), 9)", gpus=1)
    first = cluster.until(killed, lambda job: bool(job["attempts"]) and job["attempts"][0]["ended"], "its first end")
    (member,) = first["attempts"][0]["members"]
    assert (member["exit_code"], member["signal"]) == (None, 9)
    cluster.client.act(killed, "cancel")


def test_b40_cancels_that_are_answered_while_the_daemon_restarts_are_so(cluster: Cluster) -> None:
    """Of jobs that have ended, run and wait; each is asked until it is answered."""
    cluster.begin(a="cpu:2")
    done = command(cluster, "-c", "pass", gpus=1)
    cluster.until_state(done, "COMPLETED")
    sleeper = ("-c", "import time; time.sleep(10**6)")
    running = [command(cluster, *sleeper, gpus=1) for _ in range(2)]
    for id in running:
        cluster.until_state(id, "RUNNING")
    waiting = [command(cluster, *sleeper, gpus=1) for _ in range(4)]

    def cancel(id: int) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return str(cluster.client.act(id, "cancel")["state"])
            except JctError as error:
                if error.code is not Code.UNREACHABLE or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    ids = [done, *running, *waiting]
    with ThreadPoolExecutor(len(ids)) as threads:
        answers = threads.map(cancel, ids)
        cluster.kill_daemon()
        cluster.restart_daemon()
        said = dict(zip(ids, answers, strict=True))
    assert said[done] == "COMPLETED"
    assert {said[id] for id in running} <= {"STOPPING", "CANCELLED"}
    assert {said[id] for id in waiting} == {"CANCELLED"}
    for id in (*running, *waiting):
        assert cluster.until(id, lambda job: job["result"] is not None, "its end")["result"] == "CANCELLED"
    assert cluster.job(done)["result"] == "COMPLETED"
    cluster.eventually(lambda: cluster.free_devices() == 2, "its devices are free")


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """The `cgroup.procs` of a cgroup that may have 100 MiB; skips where this account may not make one."""
    first = Path("/sys/fs/cgroup/memory")
    root, limit = (first, "memory.limit_in_bytes") if first.is_dir() else (first.parent, "memory.max")
    group = root / f"jct-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text("104857600")
    except OSError as error:
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    yield group / "cgroup.procs"
    group.rmdir()


def test_b42_what_the_kernel_kills_for_want_of_memory_is_told_so_and_not_tried_again(
    cluster: Cluster, little_memory: Path
) -> None:
    cluster.begin(a="cpu:1")
    greedy = f"open({str(little_memory)!r}, 'w').write('0'); taken = [bytearray(b'x' * 2**20) for _ in range(1000)]"
    ended = cluster.until(command(cluster, "-c", greedy, gpus=1), lambda job: job["result"] is not None, "its end")
    assert (ended["result"], ended["exit_code"], ended["signal"]) == ("OUT_OF_MEMORY", None, 9)
    assert len(ended["attempts"]) == 1
    assert "the kernel killed for want of memory" in ended["attempts"][0]["message"]


NASTY = ("$(touch pwned)", "`touch pwned`", "; touch pwned", "'\"; touch pwned", "-rf", "a\\nb")


def test_b46_nothing_that_a_person_writes_is_looked_at_by_a_shell(cluster: Cluster) -> None:
    cluster.begin(a="cpu:1")
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NASTY']]))"
    for text in NASTY:
        fields = {"name": text, "note": text, "env": {"NASTY": text}, "gpus": 1}
        id = command(cluster, "-c", show, text, text, **fields)
        assert cluster.until_state(id, "COMPLETED")["name"] == text
        said = cluster.client.call("GET", f"jobs/{id}/logs").data.decode()
        assert json.loads(said) == [[text, text], text]
    cluster.client.call("POST", "nodes/a/drain", body={"reason": NASTY[0]})
    cluster.client.call("POST", "nodes/a/resume")
    assert list(cluster.state.rglob("pwned*")) == []


def test_b23_two_gangs_on_one_node_get_ports_of_their_own(cluster: Cluster) -> None:
    cluster.begin(a="cpu:4")
    bind = (
        "import os, socket, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
        "print(os.environ['MASTER_PORT'], flush=True)\n"
        "time.sleep(10**6)\n"
    )
    jobs = [command(cluster, "-c", bind, gpus=2, preemptible=True) for _ in range(2)]

    def port(id: int) -> str:
        return cluster.client.call("GET", f"jobs/{id}/logs").data.decode().strip()

    for id in jobs:
        cluster.until_state(id, "RUNNING")
        cluster.eventually(lambda id=id: port(id) != "", "it has bound its port")
    assert len({port(id) for id in jobs}) == 2
    cluster.client.act(jobs[0], "preempt")  # and at once again on the same node
    cluster.until(jobs[0], lambda job: (job["attempt"], job["state"]) == (2, "RUNNING"), "its second attempt")
    cluster.eventually(lambda: port(jobs[0]) not in ("", port(jobs[1])), "it has bound one again")


@pytest.mark.long
def test_b10_b12_a_node_that_comes_back_late_gives_up_what_others_have_by_now(cluster: Cluster) -> None:
    """Its agent is stopped for longer than a lost node's silence, and its job goes on elsewhere."""
    cluster.begin(a="cpu:1", b="cpu:1")
    job = command(cluster, "-c", "import time; time.sleep(10**6)", gpus=1)
    node = cluster.until_state(job, "RUNNING")["attempts"][0]["nodes"][0]
    (old,) = [pid for pid in cluster.processes_of(job) if b"time.sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(cluster.agents[node].pid, signal.SIGSTOP)
    try:
        moved = cluster.until(
            job, lambda seen: (seen["attempt"], seen["state"]) == (2, "RUNNING"), "an attempt elsewhere"
        )
        assert moved["attempts"][1]["nodes"] != [node]
        assert cluster.free_devices() == 0, "what the lost node's device runs is not known, so nobody gets it"
        assert Path(f"/proc/{old}").exists()
    finally:
        os.kill(cluster.agents[node].pid, signal.SIGCONT)
    cluster.eventually(lambda: not Path(f"/proc/{old}").exists(), "the late owner is stopped first")
    cluster.eventually(lambda: cluster.free_devices() == 1, "then its device is free")
    assert cluster.job(job)["attempt"] == 2
    other = command(cluster, "-c", "pass", gpus=1)
    assert cluster.until_state(other, "COMPLETED")["attempts"][0]["nodes"] == [node]


@pytest.mark.long
def test_b08_b62_a_daemon_that_was_stopped_for_longer_than_a_lost_nodes_silence_goes_on(cluster: Cluster) -> None:
    """As a machine that was suspended: its clock has run on, and what agents said meanwhile lies in its socket."""
    cluster.begin(a="fake:1", b="fake:1")
    job = cluster.submit(gpus=2, work=FOREVER, preemptible=False)
    attempt = cluster.until_state(job, "RUNNING")["attempt"]
    assert cluster.daemon is not None
    stopped_s = time.monotonic()
    os.kill(cluster.daemon.pid, signal.SIGSTOP)
    cluster.eventually(lambda: time.monotonic() - stopped_s > 75, "a lost node's silence passes")
    os.kill(cluster.daemon.pid, signal.SIGCONT)
    step = cluster.job(job)["step"]
    cluster.until(job, lambda seen: (seen["step"] or 0) > step, "another step")
    assert cluster.job(job)["attempt"] == attempt
    kinds = {event["kind"] for event in cluster.client.events("events")}
    assert not kinds & {"NodeSilent", "NodeLost"}
