"""A real cluster for end-to-end tests: daemon and agents as processes, driven over REST."""

import contextlib
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.client import Client
from scheduler.cli.local import LocalCluster

JOBS = Path(__file__).parent / "jobs"
PATIENCE_S = 120.0
LOOK_S = 0.05

Job = dict[str, Any]


class Cluster(LocalCluster):
    """Adds what tests ask of a cluster to what `jct up` and `jct demo` start."""

    client: Client

    def begin(self, **agents: str) -> "Cluster":
        """agents: devices by node."""
        self.start_daemon()
        for node, devices in agents.items():
            self.start_agent(node, devices)
        self.connect()
        self.eventually(lambda: len(self.nodes_up()) == len(agents), "all agents register")
        return self

    def connect(self) -> None:
        token = (self.daemon_folder / "admin-token").read_text().strip()
        self.client = Client(self.url, token)

    def nodes_up(self) -> list[str]:
        return [node["id"] for node in self.client.call("GET", "nodes").json()["nodes"] if node["state"] == "UP"]

    def free_devices(self) -> int:
        return sum(node["free"] for node in self.client.call("GET", "nodes").json()["nodes"])

    def submit(self, entrypoint: str = "paced:job", **fields: Any) -> int:
        """checkpoint=True gives the job a checkpoint directory of its own."""
        job = {"name": "test", "entrypoint": entrypoint, "workdir": str(JOBS), **fields}
        if job.get("checkpoint") is True:
            folder = self.state / "checkpoints" / str(time.monotonic_ns())
            job["checkpoint"] = {"dir": str(folder), "every": "1s"}
        return int(self.client.call("POST", "jobs", body={"job": job}).json()["id"])

    def job(self, id: int) -> Job:
        return self.client.job(id)

    def events(self, id: int) -> list[dict[str, Any]]:
        return list(self.client.events(f"jobs/{id}/events"))

    def until(self, id: int, what: Callable[[Job], bool], name: str = "", patience_s: float = PATIENCE_S) -> Job:
        """Wait for a condition on a job; on time-out tell its whole story."""
        deadline = time.monotonic() + patience_s
        while not what(job := self.job(id)):
            if time.monotonic() > deadline:
                story = "\n".join(f"{event['kind']}: {event['message']}" for event in self.events(id))
                pytest.fail(f"job {id} never came to {name or 'what was awaited'}:\n{json.dumps(job)}\n{story}")
            time.sleep(LOOK_S)
        return job

    def until_state(self, id: int, *states: str, patience_s: float = PATIENCE_S) -> Job:
        return self.until(id, lambda job: job["state"] in states, " or ".join(states), patience_s)

    def until_step(self, id: int, step: int) -> Job:
        return self.until(id, lambda job: (job["step"] or 0) >= step, f"step {step}")

    def eventually(self, what: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, f"never: {name}"
            time.sleep(LOOK_S)

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()

    def restart_daemon(self) -> None:
        """On the same ports, as an init system would."""
        self.start_daemon()
        self.connect()

    def kill_agent(self, node: str) -> None:
        self.agents[node].kill()
        self.agents.pop(node).wait()

    def members(self, id: int) -> dict[int, int]:
        """Process ids of a job's live members on this machine, by member number."""
        found = {}
        for pid in self.processes_of(id):
            name = re.fullmatch(rf"jct {id}\.\d+/(\d+)", _name(pid))
            if name is not None:
                found[int(name[1])] = pid
        return found

    def processes_of(self, id: int) -> list[int]:
        """Every process of the job's attempts, shims and strays included, by their nonces."""
        nonces = set()
        for spec in self.state.glob(f"agents/*/attempts/{id}.*/spec.json"):
            nonces.add(json.loads(spec.read_text())["nonce"])
        return [pid for pid in pids() if environment_of(pid).get("JCT_NONCE") in nonces]

    def cancel_all(self) -> None:
        """Leave nothing running, whatever the test has left."""
        if self.daemon is None or self.daemon.poll() is not None:
            return
        jobs, _ = self.client.jobs(None)
        for job in jobs:
            self.client.act(job["id"], "cancel")
        for job in jobs:
            self.until(job["id"], lambda seen: seen["result"] is not None, "its end")

    def strays(self) -> list[int]:
        """Processes of any attempt of this cluster that are still there after a moment."""
        nonces = {json.loads(s.read_text())["nonce"] for s in self.state.glob("agents/*/attempts/*/spec.json")}
        deadline = time.monotonic() + PATIENCE_S
        while found := [pid for pid in pids() if environment_of(pid).get("JCT_NONCE") in nonces]:
            if time.monotonic() > deadline:
                return found
            time.sleep(LOOK_S)
        return []

    def metrics(self, id: int) -> list[dict[str, Any]]:
        """Lines of all the job's attempts, oldest attempt first."""
        files = sorted(
            self.state.glob(f"agents/*/attempts/{id}.*/metrics.jsonl"), key=lambda f: int(f.parent.suffix[1:])
        )
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]


def fixed_ports() -> tuple[int, int]:
    """Two that neither the system gives to connections nor a node to gangs: while a daemon is away, nobody gets them by
    chance."""
    found: list[int] = []
    while len(found) < 2:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found[0], found[1]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Child processes, zombies included."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in lists for child in file.read_text().split()]
