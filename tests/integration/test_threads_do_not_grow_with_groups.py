"""A rank has as many threads with two peers as with sixteen, and as many for sixteen stages as for one (DYN-36)."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from worker.transport import Groups


def threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def each(ranks: int, stages: int = 1) -> float:
    """Threads of each of so many ranks, which hold so many stages with the same replicas, and use every group once."""
    store, helpers = HashStore(), set()

    def work(rank: int) -> Groups:
        helpers.add(threading.get_native_id())
        made = Groups(store, f"{ranks}/{stages}", rank, ranks, "127.0.0.1", lambda: None, 60)
        for group in (made.world, *(made.among("replicas", tuple(range(ranks))) for _ in range(stages))):
            value = torch.ones(3)
            group.sum(value)
            assert value.tolist() == [ranks] * 3
        made.watch()
        return made

    before = threads()
    with ThreadPoolExecutor(ranks) as pool:
        everyone = list(pool.map(work, range(ranks)))
    found = threads() - before - helpers
    for groups in everyone:
        groups.unwatch()
    return len(found) / ranks


@pytest.fixture(scope="module")
def base() -> float:
    """Threads of a rank that has one peer and one stage."""
    return each(2)


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_more_peers_cost_no_thread(base: float, ranks: int) -> None:
    assert each(ranks) == base


@pytest.mark.parametrize("stages", [2, 16])
def test_more_stages_with_the_same_replicas_cost_no_thread(base: float, stages: int) -> None:
    assert each(4, stages) == base


def test_a_rank_has_few(base: float) -> None:
    """Sockets, the watcher, and one for the sums of each of its two groups."""
    assert base == 4
