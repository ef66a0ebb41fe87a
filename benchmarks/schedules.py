"""Idle time and peak activations of every schedule by event timing, beside the closed forms; then a sweep of transfers.

Run: python benchmarks/schedules.py
"""

from policies.bubbles import busy_s
from policies.cost import Durations
from policies.schedules.catalogue import make_schedule
from policies.timing import Compiled, compile_schedule, timeline

RANKS, COUNTS = (2, 4, 8), (1, 4, 8, 16, 32, 64)
TABLE = ("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zbv", "dualpipev", "sliced-1f1b")


def order_of(name: str, ranks: int, count: int) -> Compiled:
    return compile_schedule(make_schedule(name, ranks, count))


def equal(order: Compiled, comm: float = 0.0) -> Durations:
    """F = I = W and three units a rank and micro-batch, so that schedules with two chunks do the same work."""
    stages = order.schedule.stages
    part = (1.0 / order.schedule.chunks,) * stages
    return Durations(part, part, part, (comm,) * (stages - 1))


def idle(order: Compiled) -> float:
    run = timeline(order, equal(order))
    return run.makespan_s - busy_s(run)[0]


if __name__ == "__main__":
    print("idle time of a rank in units of F (F = I = W = 1) / peak activations; P ranks, m micro-batches")
    for ranks in RANKS:
        print(f"\nP={ranks:<2} {'':<18}" + "".join(f"{f'm={count}':>14}" for count in COUNTS))
        for name in TABLE:
            cells = []
            for count in COUNTS:
                order = order_of(name, ranks, count)
                cells.append(f"{idle(order):g} / {max(order.footprint.peak_activations):g}")
            print(f"     {name:<18}" + "".join(f"{cell:>14}" for cell in cells))
    print("\nmakespan at P=4, m=16 by one-way transfer c in units of t = F + B")
    print(f"{'c/t':>6}" + "".join(f"{name:>14}" for name in ("gpipe", "1f1b", "eager-1f1b")))
    for ratio in (0, 0.17, 0.33, 0.5, 0.67):
        orders = [order_of(name, 4, 16) for name in ("gpipe", "1f1b", "eager-1f1b")]
        print(f"{ratio:>6}" + "".join(f"{timeline(o, equal(o, 3 * ratio)).makespan_s:>14.2f}" for o in orders))
