"""Which measured row a gang runs."""

from collections import Counter
from collections.abc import Iterable

from policies.ir.plan import ParallelPlan
from policies.jct.rooms import arrangements
from policies.model.cluster import MeasuredMenu, MeasuredRow


def row_of(menu: MeasuredMenu, plan: ParallelPlan, kind: str, nodes: Iterable[str]) -> MeasuredRow:
    """The fastest row of this plan on devices on these nodes, named once a device, in node order.

    Raises:
        ValueError: it was never measured, so nobody may run it.
    """
    shape = tuple(Counter(nodes).values())
    rows = [
        row
        for row in menu.rows
        if row.kind == kind
        and row.plan == plan
        and row.devices == sum(shape)
        and (not row.per_node or shape in arrangements(row.per_node))
    ]
    if not rows:
        raise ValueError(f"plan {plan.schedule!r} was never measured on {kind} devices placed as {shape}")
    return min(rows, key=lambda row: row.step_time_s)
