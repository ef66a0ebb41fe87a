"""A job may change as often as it likes: threads, connections and layers of a generation go with it."""

import gc
import os
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gang import Site, log, member_pids, plan
from jobs.tiny import job as tiny_job
from torch.distributed import HashStore

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.generation import Generation
from worker.launcher import Launched
from worker.layer import build_layers
from worker.rendezvous import Rendezvous
from worker.transport import Groups
from worker.world import World

CHANGES = 8
PATIENCE_S = 20.0
SHAPE = plan((0, 3, 6))
OTHERS = {"what is run": replace(SHAPE, schedule="zb-h1"), "where layers are": plan((0, 2, 6))}


def held(pid: int) -> tuple[int, int]:
    """Threads and sockets of a process."""
    folder = Path(f"/proc/{pid}")
    names = [os.readlink(file) for file in (folder / "fd").iterdir()]
    return len(list((folder / "task").iterdir())), sum(name.startswith("socket:") for name in names)


@pytest.mark.parametrize("other", OTHERS)
def test_threads_and_connections_of_a_generation_go_with_it(site: Site, other: str) -> None:
    holds = tuple(3 * (number + 1) for number in range(CHANGES + 1))
    arguments = {"blocks": 4, "steps": 10**6}
    launched = site.launch(
        SHAPE, site.spec(entrypoint="uncollected:job", directory=None, arguments=arguments, hold_at=holds)
    )
    seen: list[dict[int, tuple[int, int]]] = []
    for number in range(CHANGES):
        launched.wait(Launched.is_running)
        launched.change(OTHERS[other] if number % 2 == 0 else SHAPE)
        launched.wait(lambda it, wanted=number + 2: it.pilot.generation == wanted)
        pids = member_pids(launched)
        deadline = time.monotonic() + PATIENCE_S
        while seen and any(held(pid) > seen[0][member] for member, pid in pids.items()):
            assert time.monotonic() < deadline, f"change {number}: {seen[0]}, now {list(map(held, pids.values()))}"
            launched.poll(0.02)
        seen.append({member: held(pid) for member, pid in pids.items()})
    launched.stop(grace_s=10, why="seen enough")
    launched.wait()
    assert launched.pilot.cause is Cause.STOPPED, log(launched)


def alone(shape: ParallelPlan) -> Generation:
    store, device = HashStore(), torch.device("cpu")
    world = World(1, shape, (0,), "127.0.0.1:1", "alone", store)
    groups = Groups(store, "alone", 0, 1, "127.0.0.1", lambda: None, 5)
    job = tiny_job()
    layers = build_layers(job, range(len(job.names)), device)
    meet = Rendezvous(store, "alone", lambda: None)
    return Generation(job, world, 0, layers, groups, meet, None, device, 5.0)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_layers_go_with_the_last_generation_that_has_them(schedule: str) -> None:
    alone(plan((0, 6)))  # what torch imports for its first optimizer keeps frames, once
    gc.collect()
    gc.disable()
    try:
        generation = alone(plan((0, 6), schedule=schedule))
        generation.train(0, 1, lambda step: 1e-2)
        parameters = [weakref.ref(one) for layer in generation.layers for one in layer.parameters.values()]
        generation.release()
        del generation
        assert [one() for one in parameters if one() is not None] == []
    finally:
        gc.enable()
