"""Load on one daemon: agents that speak the real protocol, many in this process; thousands of queued jobs; timed calls.

    python -m benchmarks.load [--agents 200] [--jobs 5000] [--rate 50]

Prints the times of `submit` and of what `jct ls` asks (p50, p99), how late heartbeats were answered, and the daemon's
memory. With --curve it does so for 50, 200, 500 and 1,000 agents.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import zmq
import zmq.asyncio

from scheduler.cli.local import LocalCluster
from scheduler.protocol.codec import decode_to_agent, encode
from scheduler.protocol.messages import Beat, BeatAck, DeviceInfo, Reports, Targets, Welcome
from scheduler.simulator.agent import SimulatedAgent
from scheduler.transport.keys import allow_agent, own_pair

BEAT_S = 5.0
DEVICES = 4


@dataclass
class Load:
    """lags: seconds from a heartbeat to its answer."""

    lags: list[float] = field(default_factory=list)
    welcomed: int = 0


async def agent(load: Load, context: zmq.asyncio.Context, cluster: LocalCluster, number: int, folder: Path) -> None:
    """One node: Hello, heartbeats, Reports, and fake members that live by this process's clock."""
    node = f"n{number:04}"
    devices = tuple(DeviceInfo(id=f"{node}-{i}", kind="fake", index=i) for i in range(DEVICES))
    mind = SimulatedAgent(node=node, devices=devices, session=secrets.token_hex(4))
    sock = context.socket(zmq.DEALER)
    sock.setsockopt(zmq.LINGER, 0)
    sock.curve_publickey, sock.curve_secretkey = own_pair(folder / node, "agent")
    sock.curve_serverkey = own_pair(cluster.daemon_folder, "daemon")[0]
    sock.connect(str(cluster.facts["agents"]))
    await sock.send(encode(mind.hello(time.monotonic())))
    sent_at = 0.0

    async def beat() -> None:
        nonlocal sent_at
        sequence = 0
        await asyncio.sleep(BEAT_S * (number % 100) / 100)
        while True:
            sequence += 1
            sent_at = time.monotonic()
            await sock.send(encode(Beat(session=mind.session, seq=sequence, applied=mind.version[1])))
            reports = mind.reports(sent_at)
            if reports:
                applied = mind.version[1]
                await sock.send(
                    encode(Reports(session=mind.session, seq=sequence, applied=applied, reports=reports))
                )
            await asyncio.sleep(BEAT_S)

    beating = asyncio.create_task(beat())
    try:
        while True:
            match decode_to_agent(await sock.recv()):
                case Welcome():
                    load.welcomed += 1
                case BeatAck():
                    load.lags.append(time.monotonic() - sent_at)
                case Targets() as targets:
                    mind.take(targets, time.monotonic())
    finally:
        beating.cancel()


class Rest:
    """Timed calls from a thread."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, path: str, body: object = None) -> float:
        data = json.dumps(body).encode() if body is not None else None
        begun = time.perf_counter()
        asked = urllib.request.Request(self._url + path, data, self._headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answer.read()
        return time.perf_counter() - begun


def job(number: int) -> dict[str, object]:
    return {"job": {"name": f"j{number}", "entrypoint": "m:f", "workdir": "/", "gpus": {"min": 1, "max": 4},
                    "work": {"total": "100000 steps"}}}  # fmt: skip


async def measure(agents: int, jobs: int, rate: float, folder: Path) -> dict[str, float]:
    cluster, load, context = LocalCluster(folder), Load(), zmq.asyncio.Context()
    context.max_sockets = 4096
    for number in range(agents):
        allow_agent(cluster.daemon_folder, folder / f"n{number:04}", f"n{number:04}")
    cluster.start_daemon()
    rest = Rest(cluster.url, cluster.token() or "")
    tasks = [asyncio.create_task(agent(load, context, cluster, number, folder)) for number in range(agents)]
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(16)
    try:
        while load.welcomed < agents:
            await asyncio.sleep(0.1)
        load.lags.clear()
        submits, lists = [], []
        begun = time.monotonic()
        waiting = []
        for number in range(jobs):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            waiting.append(loop.run_in_executor(pool, rest.call, "/v1/jobs", job(number)))
            if number % 25 == 0:
                lists.append(loop.run_in_executor(pool, rest.call, "/v1/jobs?limit=500"))
        submits = list(await asyncio.gather(*waiting))
        listed = list(await asyncio.gather(*lists))
        assert cluster.daemon is not None
        memory = psutil.Process(cluster.daemon.pid).memory_info().rss
        return {
            "agents": agents, "jobs": jobs, "submit_p50_s": statistics.median(submits), "submit_p99_s": p99(submits),
            "ls_p50_s": statistics.median(listed), "ls_p99_s": p99(listed), "heartbeat_p99_s": p99(load.lags),
            "heartbeat_max_s": max(load.lags), "daemon_mb": memory / 1e6,
        }  # fmt: skip
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        context.destroy(linger=0)
        cluster.stop()


def p99(values: list[float]) -> float:
    return sorted(values)[max(0, int(len(values) * 0.99) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=50.0, help="submissions a second")
    parser.add_argument("--curve", action="store_true", help="for 50, 200, 500 and 1,000 agents")
    options = parser.parse_args()
    for agents in (50, 200, 500, 1_000) if options.curve else (options.agents,):
        with tempfile.TemporaryDirectory(prefix="jct-load-") as folder:
            found = asyncio.run(measure(agents, options.jobs, options.rate, Path(folder)))
        print(" ".join(f"{name}={value:.4g}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
