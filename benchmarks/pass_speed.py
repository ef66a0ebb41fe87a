"""CPU time of one scheduling pass of a policy: 500 jobs on 64 nodes x 8, and 2,000 on 1,000 x 8.

Run: python benchmarks/pass_speed.py [--policy jct] [--priorities 3] [--teams 1]

Of several teams each may have its part of the devices at most.
"""

import argparse
import random
import statistics
import time

from policies.ir.plan import ParallelPlan
from policies.jct.menu import build_menu
from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, MenuRequest, TeamView
from policies.model.device import DeviceKind
from policies.model.families import family
from policies.registry import find

KIND = DeviceKind("gpu")
RANGES = ((1, 4), (1, 8), (2, 8), (4, 8), (8, 16))
MODELS = ("gpt2", "gpt2-medium", "bert-48")


def crowded(nodes: int, jobs: int, seed: int, priorities: int = 3, teams: int = 1) -> ClusterSnapshot:
    """Three of five jobs run as long as there is room; the others wait."""
    draw = random.Random(seed)
    profiles = {name: (family(name, 1), family(name, 8)) for name in MODELS}
    requests = [MenuRequest(profiles[name], 64, low, high) for name in MODELS for low, high in RANGES]
    places = [(f"n{node}g{index}", f"n{node}") for node in range(nodes) for index in range(8)]
    holder: dict[str, int] = {}
    views = []
    for number in range(1, jobs + 1):
        request = draw.choice(requests)
        state, held, plan = JobState.PENDING, (), None
        entry = draw.choice(list(build_menu(request, (KIND,)).of("gpu").values()))
        if draw.random() < 0.6 and len(holder) + entry.devices <= len(places):
            held = tuple(name for name, _ in places[len(holder) : len(holder) + entry.devices])
            holder.update(dict.fromkeys(held, number))
            state, plan = JobState.RUNNING, entry.plan
        priority = 10 + 80 * draw.randrange(priorities) // max(1, priorities - 1)
        team = f"team {number % teams}"
        views.append(_job(number, draw, team, priority, state, request, held, plan))
    capped = tuple(TeamView(f"team {n}", max_devices=8 * nodes // teams) for n in range(teams) if teams > 1)
    devices = tuple(DeviceView(name, node, "gpu", None, holder.get(name)) for name, node in places)
    return ClusterSnapshot(1, 10**9, devices, tuple(views), capped)


def _job(
    number: int, draw: random.Random, team: str, priority: int, state: str, request: MenuRequest,
    held: tuple[str, ...], plan: ParallelPlan | None,
) -> JobView:  # fmt: skip
    steps = draw.randint(100, 100_000)
    return JobView(number, team, priority, number, state, request, steps, held, plan, draw.random() < 0.7)


EFFORT = 6_000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="jct")
    parser.add_argument("--priorities", type=int, default=3)
    parser.add_argument("--teams", type=int, default=1)
    asked = parser.parse_args()
    policy = find(asked.policy)
    for nodes, jobs, bound in ((64, 500, 0.1), (1000, 2000, 1.0)):
        spent = []
        for seed in range(10):
            snapshot = crowded(nodes, jobs, seed, asked.priorities, asked.teams)
            start = time.process_time()
            answer = policy.decide(snapshot, EFFORT)
            spent.append(time.process_time() - start)
        print(
            f"{jobs} jobs on {nodes} nodes x 8: median {statistics.median(spent):.3f} s, most {max(spent):.3f} s "
            f"(bound {bound} s); {len(answer.starts)} starts, {len(answer.preempts)} preemptions in the last"
        )
