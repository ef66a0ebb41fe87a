"""An activation's hop while layers travel over the same link: two network namespaces, 200 Mbit/s (htb over pfifo_fast).

Wanted: the hop takes <= 1.4x of what it takes alone, and what carries layers keeps >= 50% of its rate. The groups are
the worker's own; carrying ones have given way (`Groups.give_way`). Needs the right to make network namespaces.

    python -m benchmarks.bulk_traffic
"""

import datetime
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from network import Network, network
from torch._C._distributed_c10d import TCPStore

from worker.pieces import PIECE_BYTES
from worker.transport import Group, Groups

PORT = 29600
HOP_BYTES, HOPS, PERIOD_S = 512 << 10, 50, 0.06
OUTSTANDING = 4
CASES = ("alone", "beside layers that have not given way", "beside layers")


class Bulk(threading.Thread):
    """Sends or receives pieces for ever, some at a time. bytes: that have passed."""

    def __init__(self, group: Group, rank: int) -> None:
        super().__init__(daemon=True)
        self._group, self._rank = group, rank
        self.bytes = 0

    def run(self) -> None:
        pieces = [torch.zeros(PIECE_BYTES, dtype=torch.uint8) for _ in range(OUTSTANDING)]
        post = self._group.send if self._rank == 0 else self._group.receive
        works = [post(piece, 1 - self._rank, i) for i, piece in enumerate(pieces)]
        while True:
            for i, piece in enumerate(pieces):
                works[i].wait()
                self.bytes += PIECE_BYTES
                works[i] = post(piece, 1 - self._rank, i)


def hops(group: Group, rank: int) -> list[float]:
    """Seconds from the posting of an activation to its acknowledgement, on rank 0."""
    activation, answer = torch.zeros(HOP_BYTES, dtype=torch.uint8), torch.zeros(1)
    found = []
    for _ in range(HOPS):
        started = time.perf_counter()
        if rank == 0:
            group.finish(group.send(activation, 1, 0))
            group.finish(group.receive(answer, 1, 1))
            found.append(time.perf_counter() - started)
            time.sleep(max(0.0, PERIOD_S - found[-1]))
        else:
            group.finish(group.receive(activation, 0, 0))
            group.finish(group.send(answer, 0, 1))
    return found


def work(rank: int, host: str, case: str) -> None:
    """One node. The case is over when its hops are; bulk traffic ends with the process."""
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    store = TCPStore(host, PORT, None, rank == 1, timeout, wait_for_workers=False)
    groups = Groups(store, "hops", rank, 2, host, lambda: None, 60)
    carrying = Groups(store, "bulk", rank, 2, host, lambda: None, 60)
    if case == CASES[-1]:
        carrying.give_way()
    bulk, alone_rate = Bulk(carrying.world, rank), 0.0
    if case != CASES[0]:
        bulk.start()
        rate(bulk, 1.0)
        alone_rate = rate(bulk, 3.0)
    before, started = bulk.bytes, time.perf_counter()
    found = hops(groups.world, rank)
    if rank == 0:
        report(case, found, alone_rate, (bulk.bytes - before) / (time.perf_counter() - started))
    os._exit(0)


def rate(bulk: Bulk, seconds: float) -> float:
    """Bytes a second over some time."""
    before = bulk.bytes
    time.sleep(seconds)
    return (bulk.bytes - before) / seconds


def report(case: str, found: list[float], alone_rate: float, kept: float) -> None:
    ordered = sorted(found)
    median, late = statistics.median(ordered), ordered[int(0.95 * len(ordered))]
    line = f"{case}: hop {median * 1e3:.1f} ms, one in twenty above {late * 1e3:.1f} ms"
    if alone_rate:
        line += f"; layers {kept * 8e-6:.0f} Mbit/s, {kept / alone_rate:.0%} of {alone_rate * 8e-6:.0f} without hops"
    print(line, flush=True)


def shape(nodes: Network) -> None:
    """What leaves node a goes through one class of 200 Mbit/s, in the order of pfifo_fast's bands."""
    for command in (
        "qdisc add dev up0 root handle 1: htb default 10 r2q 100",
        "class add dev up0 parent 1: classid 1:10 htb rate 200mbit ceil 200mbit burst 32k",
        "qdisc add dev up0 parent 1:10 handle 10: pfifo_fast",
    ):
        subprocess.run(nodes.a.command("tc", *command.split()), check=True)


def main() -> None:
    with network() as nodes:
        shape(nodes)
        command = [sys.executable, "-m", "benchmarks.bulk_traffic"]
        for case in CASES:
            ranks = [
                subprocess.Popen(node.command(*command, str(rank), nodes.b.address, case))
                for rank, node in enumerate((nodes.a, nodes.b))
            ]
            for process in ranks:
                process.wait(180)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        main()
