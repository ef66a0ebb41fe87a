"""kill -9 at random moments on daemon, agents, shims and ranks under a stream of fake and real jobs.

No acknowledged job is lost, none runs twice at once, no device is leaked or has two owners, no process is left over.
"""

import contextlib
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import JOBS, Cluster, environment_of, pids

from scheduler.core.errors import JctError

DEVICES = 2
REAL, FAKE = dict.fromkeys(("one", "two"), f"cpu:{DEVICES}"), dict.fromkeys(("three", "four"), "fake:8")
_MEMBER = re.compile(r"jct (\d+)\.(\d+)/\d+")
STEPS = 40
FORGIVEN = 3
"""So often a job is queued again after a fault, before its next checkpoint; then it has FAILED, and says so."""
FAULTS = ("rank_lost", "start_failed", "stalled", "node_lost")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1))
def test_a_hundred_rounds(cluster: Cluster, tmp_path: Path, seed: int) -> None:
    _Crashes(cluster, tmp_path, random.Random(seed), fakes=200, reals=10).run(100)


def test_ten_rounds(cluster: Cluster, tmp_path: Path) -> None:
    _Crashes(cluster, tmp_path, random.Random(7), fakes=40, reals=4).run(10)


class _Crashes:
    def __init__(self, cluster: Cluster, folder: Path, rng: random.Random, fakes: int, reals: int) -> None:
        self.cluster, self.rng = cluster, rng
        self.documents = [_fake(folder, number) for number in range(fakes)]
        self.documents += [_real(folder, number) for number in range(reals)]
        rng.shuffle(self.documents)
        self.acknowledged: dict[int, dict[str, object]] = {}
        self.hits: Counter[int] = Counter()
        self.over = threading.Event()

    def run(self, rounds: int) -> None:
        self.cluster.begin(**REAL, **FAKE)
        with _thread(self._submit), _Watch(self.cluster.state) as watch:
            for _ in range(rounds):
                time.sleep(self.rng.uniform(0.1, 1.5))  # the moment is what is random
                self._kill_something()
            self.over.set()
        assert len(self.acknowledged) == len(self.documents), "one key is one job, however often it was sent"
        for id in self.acknowledged:
            self.cluster.until(id, lambda job: job["result"] is not None, "its end", 600.0)
        self._check()
        assert watch.violations == []

    def _submit(self) -> None:
        """Each until it is acknowledged, over all restarts of the daemon."""
        for number, document in enumerate(self.documents):
            headers = {"Idempotency-Key": f"job-{number}"}
            while True:
                try:
                    answer = self.cluster.client.call("POST", "jobs", body={"job": document}, headers=headers)
                    break
                except JctError:
                    time.sleep(0.05)
            self.acknowledged[int(answer.json()["id"])] = document
            self.over.wait(self.rng.uniform(0.0, 0.4))  # once the kills are over, all at once

    def _kill_something(self) -> None:
        match self.rng.choice(["daemon", "agent", "fakes", "member", "member", "shim"]):
            case "daemon":
                self.cluster.kill_daemon()
                self.cluster.restart_daemon()
            case "agent":
                self._restart(*self.rng.choice(list(REAL.items())))
            case "fakes":
                self._restart(*self.rng.choice(list(FAKE.items())))
            case "member":
                self._kill([pid for pid in pids() if _MEMBER.fullmatch(_name(pid))])
            case _:
                files = self.cluster.state.glob("agents/*/attempts/*/shim.json")
                self._kill([_pid(file) for file in files if not (file.parent / "done").exists()])

    def _restart(self, node: str, devices: str) -> None:
        self.cluster.kill_agent(node)
        time.sleep(self.rng.uniform(0.0, 1.0))
        self.cluster.start_agent(node, devices)

    def _kill(self, found: list[int]) -> None:
        """One of them; of no job more often than it is forgiven."""
        self.rng.shuffle(found)
        for pid in found:
            folder = Path(environment_of(pid).get("JCT_ATTEMPT_DIR", ""))
            job = int(folder.name.partition(".")[0] or 0)
            if self.cluster.state in folder.parents and self.hits[job] < FORGIVEN:
                self.hits[job] += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    def _check(self) -> None:
        for id, document in self.acknowledged.items():
            job = self.cluster.job(id)
            causes = [attempt["cause"] for attempt in job["attempts"]]
            used_up = sum(cause in FAULTS for cause in causes) > FORGIVEN
            assert job["name"] == document["name"]
            assert job["result"] == ("FAILED" if used_up and job["faults"] == FORGIVEN else "COMPLETED"), causes
            numbers = [attempt["attempt"] for attempt in job["attempts"]]
            assert numbers == list(range(1, len(numbers) + 1))
            ends = [attempt["ended"] for attempt in job["attempts"]]
            begins = [attempt["created"] for attempt in job["attempts"]]
            assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False)), "one attempt at a time"
            if job["result"] == "COMPLETED" and "profile" not in document:
                steps = {line["step"] for line in self.cluster.metrics(id) if "loss" in line}
                assert steps == set(range(1, STEPS + 1)), "every step was made"
        self.cluster.eventually(lambda: self.cluster.free_devices() == 20, "all devices are free")


class _Watch:
    """Looks at the processes: of no job two attempts at once, on no node more members than it has devices."""

    def __init__(self, cluster: Path) -> None:
        self._cluster = cluster
        self.violations: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            twice = _doubles(self._cluster)
            if twice:  # in one look an end and a start may meet
                self.violations += sorted(twice & _doubles(self._cluster))


def _doubles(cluster: Path) -> set[str]:
    """Among the processes of this cluster; other tests have theirs."""
    attempts: dict[str, set[str]] = {}
    members: Counter[Path] = Counter()
    for pid in pids():
        found, folder = _MEMBER.fullmatch(_name(pid)), Path(environment_of(pid).get("JCT_ATTEMPT_DIR", "/"))
        if found is not None and cluster in folder.parents:
            attempts.setdefault(found[1], set()).add(found[2])
            members[folder.parent] += 1
    twice = {f"job {job} in attempts {sorted(found)}" for job, found in attempts.items() if len(found) > 1}
    return twice | {f"{count} members on {node}" for node, count in members.items() if count > DEVICES}


@contextlib.contextmanager
def _thread(work: object) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _fake(folder: Path, number: int) -> dict[str, object]:
    file = folder / f"profile-{number % 4}.json"
    layers = [{"name": f"l{i}", "forward_s": 0.002 * (number % 4 + 1), "backward_s": 0.004} for i in range(4)]
    file.write_text(json.dumps({"microbatch_size": 1, "layers": layers}))
    return {
        "name": f"fake {number}", "entrypoint": "m:f", "workdir": "/", "profile": str(file),
        "gpus": {"min": 1, "max": 4, "type": "fake"}, "work": {"total": "40 steps"},
        "parallel": {"global_batch": 4, "micro_batch_size": 1},
    }  # fmt: skip


def _real(folder: Path, number: int) -> dict[str, object]:
    return {
        "name": f"real {number}", "entrypoint": "paced:job", "workdir": str(JOBS), "arguments": {"steps": STEPS},
        "gpus": {"min": 1, "max": 2, "type": "cpu"},
        "checkpoint": {"dir": str(folder / f"checkpoint-{number}"), "every": "1s"},
    }  # fmt: skip


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _pid(shim: Path) -> int:
    return int(json.loads(shim.read_text())["pid"])
