"""What sampling costs an agent: CPU time over wall time at 2 Hz, and memory. `python -m benchmarks.telemetry_overhead`

A real agent with fake devices runs without a daemon; its CPU time is what the kernel has counted for it.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time

import psutil

SETTLE_S = 4.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", default="fake:8")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.devices, options.seconds)
    print(json.dumps(found) if options.json else "\n".join(f"{name:<20}{value:.4g}" for name, value in found.items()))


def measure(devices: str, seconds: float) -> dict[str, float]:
    """cpu_percent: of one core, of the whole agent; memory_bytes: resident, and unique to the process."""
    with tempfile.TemporaryDirectory() as state, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # held, never listening: the agent calls and calls
        endpoint = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        command = [sys.executable, "-m", "agent.main", "--connect", endpoint, "--state", state, "--devices", devices]
        agent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process = psutil.Process(agent.pid)
            time.sleep(SETTLE_S)
            before, began = _spent_s(process), time.monotonic()
            time.sleep(seconds)
            share = (_spent_s(process) - before) / (time.monotonic() - began)
            memory = process.memory_full_info()
            threads = process.num_threads()
        finally:
            agent.terminate()
            agent.wait()
    return {
        "cpu_percent": 100 * share, "resident_bytes": memory.rss, "unique_bytes": memory.uss, "threads": threads,
    }  # fmt: skip


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
