"""Torch's own generators are the oracle for the orders that both have. Its private module is named here only."""

import pytest

from policies.schedules.catalogue import make_schedule

torch_visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")


def torch_order(name: str, ranks: int, count: int, stages_a_rank: int) -> list[list[str]]:
    found = []
    for actions in torch_visualizer.get_schedule_ops(name, ranks, count, stages_a_rank):
        flat = [part for action in actions if action is not None for part in (action.sub_actions or (action,))]
        found.append(
            [
                f"{a.computation_type.value}{a.microbatch_index}@{a.stage_index}"
                for a in flat
                if a.computation_type.value in {"F", "B", "I", "W"}
            ]
        )
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "stages_a_rank", "counts"),
    [
        ("gpipe", "GPipe", 1, (1, 4, 16)),
        ("interleaved-1f1b", "Interleaved1F1B", 2, (8, 16, 32)),
        ("interleaved-1f1b", "Interleaved1F1B", 3, (8, 16)),
        ("zbv", "ZBVZeroBubble", 2, (1, 4, 8, 16, 32)),
        ("dualpipev", "DualPipeV", 2, (16, 17, 32)),
    ],
)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_order_is_torchs_own(
    ours: str, theirs: str, stages_a_rank: int, counts: tuple[int, ...], ranks: int
) -> None:
    for count in counts:
        chunks = stages_a_rank if ours.startswith("interleaved") else None
        mine = make_schedule(ours, ranks, count, chunks=chunks)
        assert [list(map(str, order)) for order in mine.orders] == torch_order(theirs, ranks, count, stages_a_rank)
