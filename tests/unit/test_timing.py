from dataclasses import replace

import pytest

from policies.cost import Durations
from policies.ir.plan import ParallelPlan, StagePlan
from policies.schedules.assign import deal, schedule_of
from policies.schedules.catalogue import make_schedule
from policies.timing import compile_schedule, index_schedule, makespan_s, step_time_s, timeline

ONES = Durations((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.5,))


def test_a_transfer_may_occupy_its_sender() -> None:
    order = compile_schedule(make_schedule("gpipe", 2, 4))
    beside = makespan_s(order, ONES)
    occupied = makespan_s(order, replace(ONES, transfers_block=True))
    assert beside == pytest.approx(4 * 3 + 3 + 2 * 0.5)
    assert occupied == pytest.approx(beside + 3 * 0.5 + 3 * 0.5), "all sends but the last of each pass delay the next"


def test_a_slow_rank_computes_longer() -> None:
    order = compile_schedule(make_schedule("1f1b", 2, 4))
    run = timeline(order, replace(ONES, slow=(1.0, 2.0)))
    lengths = {(span.rank, str(span.action.kind)): span.end_s - span.start_s for span in run.spans}
    assert lengths == pytest.approx({(0, "F"): 1, (0, "B"): 2, (1, "F"): 2, (1, "B"): 4})


def test_all_reduce_and_optimizer_come_after_a_ranks_last_action() -> None:
    order = compile_schedule(make_schedule("1f1b", 2, 4))
    plain = step_time_s(order, ONES)
    assert step_time_s(order, replace(ONES, finish_s=(0.25, 0.0))) == pytest.approx(plain + 0.25)
    assert step_time_s(order, replace(ONES, finish_s=(0.0, 0.25))) == pytest.approx(plain), "the drain hides it"


def uneven(schedule: str = "1f1b") -> ParallelPlan:
    stages = (StagePlan(0, 1, (0, 1), (3, 3)), StagePlan(1, 2, (2,), (6,)))
    return ParallelPlan(stages, 6, 1, schedule)


def test_stages_with_more_replicas_deal_micro_batches_out_in_turn() -> None:
    assert deal((2, 2)) == [0, 1, 0, 1]
    assert deal((3, 1)) == [0, 0, 1, 0]
    schedule = schedule_of(uneven())
    assert [sorted({action.microbatch for action in order}) for order in schedule.orders] == [
        [0, 2, 4], [1, 3, 5], [0, 1, 2, 3, 4, 5],
    ]  # fmt: skip
    free = replace(ONES, transfer_s=(0.0,))
    two_to_one = Durations((2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (0.0,))
    assert makespan_s(index_schedule(schedule), two_to_one) < 6 * 6, "two replicas of a stage twice as heavy keep up"
    assert makespan_s(index_schedule(schedule), free) >= 6 * 3


def test_stages_that_do_not_fit_a_schedule_are_refused() -> None:
    with pytest.raises(ValueError, match="the same replicas and shares"):
        schedule_of(uneven("zb-h1"))
    doubled = replace(uneven(), stages=(uneven().stages[0], replace(uneven().stages[1], ranks=(0,))))
    with pytest.raises(ValueError, match="holds two stages"):
        schedule_of(doubled)
    wrong = ParallelPlan((StagePlan(0, 1, (0,), (2,)), StagePlan(1, 2, (0,), (2,))), 2, 1, "zbv")
    assert len(schedule_of(wrong).orders) == 1
    crossed = ParallelPlan(tuple(StagePlan(s, s + 1, (s % 2,), (2,)) for s in range(4)), 2, 1, "zbv")
    with pytest.raises(ValueError, match="does not lay 4 stages"):
        schedule_of(crossed)
