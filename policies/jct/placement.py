"""Which devices a gang gets: as few nodes as possible, neighbours of the pipeline on one node."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise, permutations

from policies.ir.plan import ParallelPlan
from policies.model.cluster import DeviceView
from policies.model.profile import ModelProfile


def place(devices: Iterable[DeviceView], count: int) -> tuple[str, ...]:
    """`count` device ids in rank order; empty when there are not that many.

    One node with just enough room is best; else nodes with the most room, fewest nodes first. Consecutive ranks stay on
    one node, and `make_plan` numbers the ranks of a pipeline consecutively.
    """
    nodes: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        nodes[device.node].append(device.id)
    if count < 1 or sum(map(len, nodes.values())) < count:
        return ()
    room = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    chosen: list[str] = []
    while len(chosen) < count:
        left = count - len(chosen)
        enough = [item for item in room if len(item[1]) >= left]
        node = min(enough, key=lambda item: (len(item[1]), item[0])) if enough else room[0]
        room.remove(node)
        chosen += sorted(node[1])[:left]
    return tuple(chosen)


MOST_ORDERS = 24
"""Orders of nodes that are tried: all of up to four nodes."""


def near(
    devices: Sequence[DeviceView], plan: ParallelPlan | None, profile: ModelProfile | None
) -> list[DeviceView]:
    """The devices in rank order, node after node, so that the least crosses nodes, and switches even less.

    Where the model's profile or the order does not matter they stay as they are.
    """
    nodes: dict[str, list[DeviceView]] = {}
    for device in devices:
        nodes.setdefault(device.node, []).append(device)
    if len(nodes) < 2 or plan is None or profile is None or plan.stages[-1].stop > len(profile.layers):
        return list(devices)
    traffic = _traffic(plan, profile)
    orders = islice(permutations(nodes.values()), MOST_ORDERS)
    laid = ([device for node in order for device in node] for order in orders)
    return min(laid, key=lambda order: _crossing(order, traffic))


def _traffic(plan: ParallelPlan, profile: ModelProfile) -> list[tuple[int, int, float]]:
    """Between ranks of neighbouring stages: bytes that cross in a step, each way."""
    found: list[tuple[int, int, float]] = []
    for stage, following in pairwise(plan.stages):
        each = profile.layers[stage.stop - 1].output_bytes * plan.microbatches
        pairs = [(a, b) for a in stage.ranks for b in following.ranks]
        found += [(a, b, each / len(pairs)) for a, b in pairs]
    return found


def _crossing(order: Sequence[DeviceView], traffic: Iterable[tuple[int, int, float]]) -> float:
    def distance(a: DeviceView, b: DeviceView) -> int:
        return 0 if a.node == b.node else 1 if a.switch == b.switch else 2

    return sum(size * distance(order[a], order[b]) for a, b, size in traffic)
