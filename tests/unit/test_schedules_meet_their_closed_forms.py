"""Table P x m of FORMULAS B3: balanced stages, no communication; idle times and peaks are exact."""

import pytest

from policies.bubbles import busy_s, split_idle
from policies.cost import Durations
from policies.schedules.catalogue import FAMILIES, make_schedule
from policies.schedules.one_f_one_b import eager_one_f_one_b
from policies.timing import Compiled, compile_schedule, timeline

F, BI, W = 1.0, 1.2, 0.8
B = BI + W
RANKS = [2, 4, 8]
COUNTS = [1, 4, 8, 16, 32, 64]


def durations(order: Compiled, f: float = F, i: float = BI, w: float = W, c: float = 0.0) -> Durations:
    stages = order.schedule.stages
    return Durations((f,) * stages, (i,) * stages, (w,) * stages, (c,) * (stages - 1))


def order_of(name: str, ranks: int, count: int, chunks: int | None = None, slices: int | None = None) -> Compiled:
    return compile_schedule(make_schedule(name, ranks, count, chunks=chunks, slices=slices))


def idle(order: Compiled, f: float = F, i: float = BI, w: float = W) -> float:
    """Makespan less the computing of a rank; equal for all ranks at balanced stages."""
    run = timeline(order, durations(order, f, i, w))
    return run.makespan_s - busy_s(run)[0]


def inner_bubble(order: Compiled, f: float, i: float, w: float) -> float:
    """max over ranks of (end - start - busy): no synchronising step between ranks."""
    run = timeline(order, durations(order, f, i, w))
    own = [[span for span in run.spans if span.rank == rank] for rank in range(run.ranks)]
    return max(
        max(s.end_s for s in spans) - min(s.start_s for s in spans) - busy
        for spans, busy in zip(own, busy_s(run), strict=True)
    )


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", COUNTS)
def test_flushed_schedules_at_every_count(ranks: int, count: int) -> None:
    for name, peak in (
        ("gpipe", lambda s: count),
        ("1f1b", lambda s: min(count, ranks - s)),
        ("eager-1f1b", lambda s: min(count, 2 * (ranks - s) - 1)),
    ):
        order = order_of(name, ranks, count)
        assert idle(order) == pytest.approx((ranks - 1) * (F + B))
        assert order.footprint.peak_activations == tuple(peak(s) for s in range(ranks))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("slices", [2, 3, 4])
def test_sliced_at_every_count(ranks: int, count: int, slices: int) -> None:
    order = order_of("sliced-1f1b", ranks, count, slices=slices)
    assert idle(order) == pytest.approx((ranks - 1) * (F + B) / slices)
    peaks = [min(count * slices, ranks - 1 - s + slices) / slices for s in range(ranks)]
    assert order.footprint.peak_activations == pytest.approx(peaks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_interleaved_at_multiples_of_the_ranks(ranks: int, count: int, chunks: int) -> None:
    order = order_of("interleaved-1f1b", ranks, count, chunks=chunks)
    if count % ranks == 0:
        assert idle(order) == pytest.approx((ranks - 1) * (F + B))  # F, B of one chunk
        peaks = [min(count * chunks, 2 * (ranks - 1 - s) + (chunks - 1) * ranks + 1) / chunks for s in range(ranks)]
        assert order.footprint.peak_activations == pytest.approx(peaks)
    assert idle(order) <= idle(order_of("1f1b", ranks, count), chunks * F, chunks * BI, chunks * W) + 1e-9


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("f", "i", "w"), [(1, 1, 1), (1, 1.2, 0.8), (1, 1, 0.5), (1, 2, 1)])
def test_zero_bubble_with_one_stage_a_rank(ranks: int, count: int, f: float, i: float, w: float) -> None:
    plain = idle(order_of("1f1b", ranks, count), f, i, w)
    h1, h2 = order_of("zb-h1", ranks, count), order_of("zb-h2", ranks, count)
    if count >= ranks:
        assert idle(h1, f, i, w) == pytest.approx((ranks - 1) * (f + i - w))
    if count >= 2 * ranks:
        assert inner_bubble(h2, f, i, w) == pytest.approx((ranks - 1) * (f + i - 2 * w))
    if count >= 2 * ranks and f == i == w:
        assert idle(h2, f, i, w) <= (ranks - 1) * f + 1e-9
    assert idle(h1, f, i, w) <= plain + 1e-9
    assert idle(h2, f, i, w) <= plain + 1e-9
    assert h1.footprint.peak_activations == tuple(min(count, ranks - s) for s in range(ranks))
    assert h2.footprint.peak_activations == tuple(min(count, 2 * (ranks - s) - 1) for s in range(ranks))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", COUNTS)
def test_v_shaped(ranks: int, count: int) -> None:
    order = order_of("zbv", ranks, count)
    if count >= 2 * ranks:
        assert inner_bubble(order, 1, 1, 1) == pytest.approx(0)
        assert idle(order, 1, 1, 1) <= (ranks - 1) + 1e-9
    assert max(order.footprint.peak_activations) == min(count, ranks)
    plain = idle(order_of("1f1b", ranks, count), 2, 2, 2)
    assert idle(order, 1, 1, 1) <= plain + 1e-9
    assert idle(order_of("dualpipev", ranks, count), 1, 1, 1) <= plain + 1e-9


def test_asynchronous_schedules_keep_weight_versions() -> None:
    assert order_of("async-1f1b", 4, 8).footprint.weight_versions == (4, 3, 2, 1)
    assert order_of("2bw", 4, 8).footprint.weight_versions == (2, 2, 2, 2)
    assert order_of("1f1b", 4, 8).footprint.weight_versions == (1, 1, 1, 1)


@pytest.mark.parametrize("c", [0.17, 0.33, 0.5, 0.67])
@pytest.mark.parametrize("count", [2, 3, 4, 8, 32])
def test_strict_1f1b_is_the_slowest_once_transfers_cost_and_eager_hides_up_to_half(c: float, count: int) -> None:
    ranks, t = 4, F + B
    gpipe, plain, eager = (
        timeline(order, durations(order, c=c * t)).makespan_s
        for order in (order_of(name, ranks, count) for name in ("gpipe", "1f1b", "eager-1f1b"))
    )
    assert plain > max(gpipe, eager) - 1e-9
    assert count == 2 or plain > gpipe + 1e-9, "with two micro-batches only the last rank's order differs"
    if c <= 0.5:
        assert eager == pytest.approx(gpipe)
    assert max(order_of("eager-1f1b", ranks, 32).footprint.peak_activations) == 2 * ranks - 1


def test_eager_takes_a_depth_for_each_boundary() -> None:
    peaks = compile_schedule(eager_one_f_one_b(4, 16, (1, 3, 1))).footprint.peak_activations
    assert peaks == (6, 5, 2, 1)
    with pytest.raises(ValueError, match="3 depths"):
        eager_one_f_one_b(4, 16, (1, 3))


@pytest.mark.parametrize("name", FAMILIES)
def test_idle_time_is_split_without_a_rest(name: str) -> None:
    order = order_of(name, 4, 8)
    stages = order.schedule.stages
    uneven = Durations(
        tuple(1 + 0.3 * (s % 3) for s in range(stages)), (1.0,) * stages, (0.7,) * stages, (0.4,) * (stages - 1)
    )
    run = timeline(order, uneven)
    for part, busy in zip(split_idle(order, uneven), busy_s(run), strict=True):
        assert part.total == pytest.approx(run.makespan_s - busy)
        assert min(part.fill_drain, part.exposed_communication, part.imbalance, part.stall) >= 0


def test_balanced_1f1b_without_transfers_idles_only_to_fill_and_drain() -> None:
    order = order_of("1f1b", 4, 8)
    for part in split_idle(order, durations(order)):
        assert part.fill_drain == pytest.approx(3 * (F + B))
        assert part.total == pytest.approx(part.fill_drain)
