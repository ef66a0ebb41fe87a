"""Executors post receives before their messages come: none is lost, doubled or late, and all else keeps its order."""

import pytest

from policies.ir.instruction import Instruction, Op, Program
from policies.schedules.catalogue import make_schedule
from policies.schedules.lowering import lower
from worker.executor import AHEAD, COMPUTING, RECEIVING, posted_ahead

CASES = [("gpipe", 3, 5), ("1f1b", 4, 7), ("zb-h2", 3, 9), ("zbv", 3, 8), ("interleaved-1f1b", 2, 6)]


def computed_before(program: Program) -> dict[Instruction, int]:
    """How many actions come before each instruction."""
    return {do: sum(one.op in COMPUTING for one in program[:i]) for i, do in enumerate(program)}


@pytest.mark.parametrize(("schedule", "ranks", "microbatches"), CASES)
def test_only_receives_move_and_only_forward(schedule: str, ranks: int, microbatches: int) -> None:
    for program in lower(make_schedule(schedule, ranks, microbatches)):
        ahead = posted_ahead(program)
        assert [do for do in ahead if do.op not in RECEIVING] == [do for do in program if do.op not in RECEIVING]
        assert sorted(map(str, ahead)) == sorted(map(str, program))
        before, now = computed_before(program), computed_before(ahead)
        assert all(now[do] <= before[do] for do in program if do.op in RECEIVING)


def test_two_more_receives_wait_whenever_a_value_is_needed() -> None:
    program = posted_ahead(lower(make_schedule("1f1b", 3, 6))[1])
    posted = needed = 0
    for do in program:
        posted += do.op is Op.RECV_FORWARD
        if do.op is Op.FORWARD:
            needed += 1
            assert posted >= min(6, needed + AHEAD)
