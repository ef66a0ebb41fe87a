"""Which devices a gang gets: as few nodes as possible, neighbours of the pipeline on one node."""

from collections import defaultdict
from collections.abc import Iterable

from policies.model.cluster import DeviceView


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
