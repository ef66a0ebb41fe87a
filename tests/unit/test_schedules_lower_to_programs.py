import pytest

from policies.ir.action import Action, Kind
from policies.ir.instruction import Op, digest, text
from policies.ir.plan import ParallelPlan, StagePlan
from policies.ir.schedule import Schedule
from policies.schedules.catalogue import FAMILIES, make_schedule
from policies.schedules.lowering import lower, orders_for
from policies.schedules.validate import InvalidSchedule, validate


def plan(stages: int, shares: tuple[int, ...], schedule: str = "1f1b") -> ParallelPlan:
    replicas = len(shares)
    cut = tuple(StagePlan(s, s + 1, tuple(range(s * replicas, (s + 1) * replicas)), shares) for s in range(stages))
    return ParallelPlan(cut, sum(shares), 2, schedule)


def test_1f1b_of_two_ranks_reads_as_in_the_literature() -> None:
    assert text(lower(make_schedule("1f1b", 2, 2))) == (
        "F0@0 SEND_F0@0~1 F1@0 SEND_F1@0~1 RECV_B0@0~1 B0@0 RECV_B1@0~1 B1@0\n"
        "RECV_F0@1~0 RECV_F1@1~0 F0@1 B0@1 SEND_B0@1~0 F1@1 B1@1 SEND_B1@1~0"
    )


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 5, 8])
def test_both_ends_of_a_pair_see_their_messages_in_one_order(name: str, ranks: int, microbatches: int) -> None:
    programs = lower(make_schedule(name, ranks, microbatches))
    for here, program in enumerate(programs):
        for there in range(ranks):
            mine = [(i.op.startswith("SEND"), i.message) for i in program if i.peer == there]
            theirs = [(i.op.startswith("RECV"), i.message) for i in programs[there] if i.peer == here]
            assert mine == theirs


def test_peaks_of_live_activations_are_those_of_the_closed_forms() -> None:
    assert validate(make_schedule("gpipe", 4, 8)).peak_activations == (8, 8, 8, 8)
    assert validate(make_schedule("1f1b", 4, 8)).peak_activations == (4, 3, 2, 1)
    assert validate(make_schedule("1f1b", 4, 2)).peak_activations == (2, 2, 2, 1)


def test_a_deadlock_names_the_stuck_heads() -> None:
    late = Schedule(
        "crossed",
        1,
        (0, 1),
        (
            (Action(0, Kind.BACKWARD, 0), Action(0, Kind.FORWARD, 0)),
            (Action(1, Kind.FORWARD, 0), Action(1, Kind.BACKWARD, 0)),
        ),
    )
    with pytest.raises(InvalidSchedule, match="rank 0 at B0@0, rank 1 at F0@1"):
        validate(late)


def test_a_missing_or_doubled_or_misplaced_action_is_named() -> None:
    good = make_schedule("1f1b", 2, 2)
    with pytest.raises(InvalidSchedule, match="stage 1, micro-batch 1"):
        validate(Schedule("short", 2, good.stage_rank, (good.orders[0], good.orders[1][:-1])))
    with pytest.raises(InvalidSchedule, match="stage 1, micro-batch 1"):
        validate(Schedule("long", 2, good.stage_rank, (good.orders[0], good.orders[1] + good.orders[1][-1:])))
    with pytest.raises(InvalidSchedule, match="does not hold its stage"):
        validate(Schedule("swapped", 2, good.stage_rank, good.orders[::-1]))


def test_replicas_run_their_own_pipeline_on_their_share_of_the_global_indices() -> None:
    programs = orders_for(plan(2, (3, 2)))
    indices = [sorted({i.microbatch for i in program}) for program in programs]
    assert indices == [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]
    assert {i.peer for i in programs[1]} == {None, 3}


def test_equal_plans_have_equal_digests_and_others_do_not() -> None:
    assert digest(orders_for(plan(3, (4,)))) == digest(orders_for(plan(3, (4,))))
    assert digest(orders_for(plan(3, (4,)))) != digest(orders_for(plan(3, (4,), "gpipe")))


def test_a_single_stage_sends_nothing() -> None:
    (program,) = orders_for(plan(1, (3,)))
    assert [i.op for i in program] == [Op.FORWARD, Op.BACKWARD] * 3


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown schedule 'fastest'"):
        make_schedule("fastest", 2, 2)
    with pytest.raises(ValueError, match="do not sum"):
        orders_for(ParallelPlan((StagePlan(0, 1, (0,), (3,)),), 4, 1))
