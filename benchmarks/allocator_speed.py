"""How long one pass of an allocator takes: `python -m benchmarks.allocator_speed [--policy jct]`.

Each case is a busy cluster with a mixture of running and waiting jobs; passes follow one another, one minute and a few
arrivals apart, on one core.
"""

import argparse
import random
import time
from dataclasses import replace

from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.rooms import Rooms
from policies.registry import find_allocator

CASES = ((64, 500, 0.1), (1000, 2000, 1.0))
PASSES = 30
EFFORT = 6_000


def menu(chance: random.Random) -> Options:
    """Sizes 1 to 64 with a speed-up of size ** p."""
    power, second = chance.uniform(0.5, 0.95), chance.uniform(0.1, 3.0)
    shapes = [(1,), (2,), (4,), (8,), (4, 4), (8, 8), (8,) * 4, (8,) * 8]
    first = 0 if chance.random() < 0.9 else 5
    return Options(
        Option("gpu", sum(s), second / sum(s) ** power, 60.0, f"p{len(s)}", s) for s in shapes[first:]
    )


def run(policy: str, nodes: int, jobs: int, limit_s: float) -> None:
    chance = random.Random(1)
    allocator = find_allocator(policy)
    menus = [menu(chance) for _ in range(40)]
    demands: dict[str, JobDemand] = {}
    rooms = Rooms(NodeRoom(f"n{i}", "gpu", 8, 8) for i in range(nodes))
    took: list[float] = []
    made = 0
    for number in range(PASSES + 1):
        now = 60.0 * number
        while len(demands) < jobs:
            made += 1
            steps = chance.paretovariate(0.7) * 1e3
            demands[f"j{made}"] = JobDemand(f"j{made}", 0.0, chance.choice(menus), steps, asked=4)
        room = tuple(NodeRoom(node.id, "gpu", 8, rooms.free(node.id)) for node in rooms.nodes)
        begun = time.process_time()
        grants = allocator.allocate(Problem(now, room, tuple(demands.values())), EFFORT)
        took.append(time.process_time() - begun)
        for grant in grants:
            rooms.give(demands[grant.id].placement)
        for grant in grants:
            rooms.take(grant.placement)
            demands[grant.id] = replace(
                demands[grant.id], placement=grant.placement, plan=grant.plan, since_change_s=0.0
            )
        for id in chance.sample(sorted(demands), jobs // 50):
            rooms.give(demands.pop(id).placement)
        for id, job in demands.items():
            demands[id] = replace(job, age_s=job.age_s + 60, since_change_s=job.since_change_s + 60)
    first, *later = took
    later.sort()
    print(f"{policy:8s} {nodes:5d} nodes {jobs:5d} jobs: first {first:.3f} s, mean {sum(later) / len(later):.3f} s, "
          f"max {later[-1]:.3f} s (limit {limit_s} s)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="jct")
    for case in CASES:
        run(parser.parse_args().policy, *case)
