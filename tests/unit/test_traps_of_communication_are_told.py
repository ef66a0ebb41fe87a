"""Traces of a step with one trap each: it is told with its numbers, and nothing else is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore

from policies.ir.action import Action, Kind
from policies.ir.timeline import Span, Timeline
from policies.traps import SMALL_BYTES, Communication, Way, traps
from worker.rendezvous import Rendezvous
from worker.timelines import EVERY, FIRST, Timelines, read

LARGE = 10 * SMALL_BYTES


def step(replicas: int = 2) -> Timeline:
    """Two stages of so many replicas, a micro-batch each: 10 ms forward, 20 ms backward. Rank: 2 x replica + stage."""
    spans = []
    for rank in range(2 * replicas):
        stage = rank % 2
        start = 0.010 * stage
        spans.append(Span(rank, Action(stage, Kind.FORWARD, rank // 2), start, start + 0.010))
        start = 0.040 - 0.020 * stage
        spans.append(Span(rank, Action(stage, Kind.BACKWARD, rank // 2), start, start + 0.020))
    return Timeline(2 * replicas, tuple(sorted(spans, key=lambda span: (span.start_s, span.rank))), 0.060)


def summed(rank: int, ranks: tuple[int, ...], start_s: float, end_s: float, size: int = LARGE) -> Communication:
    return Communication(rank, Way.SUM, ranks, size, start_s, end_s)


HEALTHY = [
    Communication(0, Way.MESSAGE, (0, 1), 2000, 0.010, 0.0101),
    Communication(1, Way.MESSAGE, (1, 0), 2000, 0.040, 0.0401),
    summed(0, (0, 2), 0.050, 0.061),
    summed(1, (1, 3), 0.030, 0.041),
]


def test_a_step_that_overlaps_its_sums_is_left_alone() -> None:
    assert traps(step(), HEALTHY) == []


def test_a_sum_over_more_ranks_than_a_stage_has_is_told() -> None:
    wide = [summed(rank, (0, 1, 2, 3), 0.045, 0.050) for rank in (0, 2)]
    (line,) = traps(step(), HEALTHY + wide)
    assert line.startswith("ranks 0, 1, 2, 3 sum in the middle of the step, though no stage is on all of them")


def test_the_sum_that_ends_a_step_may_be_over_all_ranks() -> None:
    assert traps(step(), [*HEALTHY, *(summed(rank, (0, 1, 2, 3), 0.061, 0.0612) for rank in range(4))]) == []


def test_gradients_that_are_summed_after_everything_is_computed_are_told() -> None:
    (line,) = traps(step(), [*HEALTHY[:3], summed(1, (1, 3), 0.040, 0.055)])
    assert line.startswith("rank 1 sums for 15.0 ms of a step of 60.0 ms while it computes nothing")


@pytest.mark.parametrize(("size", "told"), [(2000, True), (LARGE, False)])
def test_small_tensors_that_travel_one_by_one_are_told(size: int, told: bool) -> None:
    row = [Communication(0, Way.MESSAGE, (0, 1), size, 0.010 + 0.0001 * i, 0.0101 + 0.0001 * i) for i in range(12)]
    found = traps(step(), HEALTHY[1:] + row)
    said = "rank 0 has 12 messages in a row among ranks 0, 1, of 2.0 kB each"
    assert [line.partition(":")[0] for line in found] == [said] * told


def test_one_small_message_for_each_action_is_no_trap() -> None:
    spans = tuple(Span(0, Action(0, Kind.FORWARD, i), 0.01 * i, 0.01 * (i + 1)) for i in range(6))
    messages = [Communication(0, Way.MESSAGE, (0, 1), 100, s.end_s - 1e-6, s.end_s) for s in spans]
    assert traps(Timeline(1, spans, 0.06), messages) == []


def test_a_traced_step_of_all_ranks_is_looked_at_on_one_clock(tmp_path: Path) -> None:
    store, run = HashStore(), step()
    meet = Rendezvous(store, "test", lambda: None)
    ranks = [Timelines(meet, rank, 4, tmp_path if rank == 0 else None) for rank in range(4)]
    late = [*HEALTHY[2:3], summed(1, (1, 3), 0.040, 0.055)]
    for number in range(FIRST + EVERY // 2):
        for rank in (3, 2, 1, 0):
            if ranks[rank].begin() is not None:
                assert number + 1 == FIRST
                spans = [later(span) for span in run.spans if span.rank == rank]
                ranks[rank].give(spans, [later(one) for one in late if one.rank == rank], zero_s=500.0)
    (line,) = ranks[0].traps
    assert line.startswith("rank 1 sums for 15.0 ms of a step of 60.0 ms while it computes nothing")
    assert read(tmp_path).makespan_s == pytest.approx(run.makespan_s)
    assert [rank.traps for rank in ranks[1:]] == [[], [], []]


def later(one: Any) -> Any:
    return replace(one, start_s=one.start_s + 500, end_s=one.end_s + 500)
