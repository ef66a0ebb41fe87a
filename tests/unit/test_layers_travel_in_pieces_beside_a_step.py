"""Programs that carry layers: the step's own instructions stay in order, and every piece goes once."""

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.ir.instruction import Op
from policies.schedules.lowering import lower
from policies.schedules.one_f_one_b import one_f_one_b
from worker import pieces
from worker.carry import Carrier
from worker.executor import COMPUTING


def parcel(count: int, peer: int = 1) -> Any:
    return SimpleNamespace(messages=[None] * count, peer=peer)


@given(sends=st.lists(st.integers(0, 50), max_size=3), receives=st.lists(st.integers(0, 50), max_size=3))
def test_every_piece_goes_once_and_the_step_stays_as_it_is(sends: list[int], receives: list[int]) -> None:
    carrier = Carrier(None, [parcel(n) for n in sends], [parcel(n) for n in receives])
    step = lower(one_f_one_b(2, 8))[0]
    program = carrier.program(step)
    layers = (Op.SEND_LAYER, Op.RECV_LAYER)
    assert tuple(one for one in program if one.op not in layers) == step
    for op, counts in ((Op.SEND_LAYER, sends), (Op.RECV_LAYER, receives)):
        found = [(one.stage, one.microbatch) for one in program if one.op is op]
        assert found == [(number, piece) for number, count in enumerate(counts) for piece in range(count)]


def test_pieces_are_spread_over_the_step_and_never_stand_between_a_result_and_its_message() -> None:
    program = Carrier(None, [parcel(16)], []).program(lower(one_f_one_b(2, 8))[0])
    actions = [i for i, one in enumerate(program) if one.op in COMPUTING]
    assert all(program[i - 1].op is Op.SEND_LAYER for i in actions)
    assert all(program[i - 1].op in COMPUTING for i, one in enumerate(program) if one.op is Op.SEND_FORWARD)


@given(st.lists(st.integers(0, 3 * pieces.PIECE_BYTES // 8), max_size=4))
def test_pieces_are_views_of_at_most_one_size_that_make_up_the_whole(lengths: list[int]) -> None:
    tensors = {str(i): torch.arange(length, dtype=torch.float64) for i, length in enumerate(lengths)}
    messages = pieces.cut(tensors)
    assert all(0 < message.numel() * 8 <= pieces.PIECE_BYTES for message in messages)
    whole = torch.cat([torch.empty(0, dtype=torch.float64), *tensors.values()])
    assert torch.equal(torch.cat([torch.empty(0, dtype=torch.float64), *messages]), whole)
    starts = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    assert all(message.untyped_storage().data_ptr() in starts for message in messages)
