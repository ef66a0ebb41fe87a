"""Which samples a step sees depends on seed, step and global batch, and on nothing else."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.batches import Batches
from worker.rampup import batch_at, samples_before
from worker.sdk import TensorData


def batches(count: int, global_batch: int, size: int, seed: int, shuffle: bool = True) -> Batches:
    data = TensorData(torch.arange(count)[:, None], torch.arange(count))
    return Batches(data, seed, shuffle, lambda step: step * global_batch, size, torch.device("cpu"), torch.float32)


def visited(source: Batches, steps: int, microbatches: int) -> list[int]:
    return [
        index
        for step in range(steps)
        for microbatch in range(microbatches)
        for index in source.indices(step, microbatch)
    ]


@given(
    count=st.integers(1, 40), size=st.integers(1, 4), microbatches=st.integers(1, 5), seed=st.integers(0, 2**31),
    epochs=st.integers(1, 3), shuffle=st.booleans(),
)  # fmt: skip
def test_each_sample_once_an_epoch(
    count: int, size: int, microbatches: int, seed: int, epochs: int, shuffle: bool
) -> None:
    source = batches(count, size * microbatches, size, seed, shuffle)
    steps = -(-count * epochs // (size * microbatches))
    seen = visited(source, steps, microbatches)
    for epoch in range(epochs):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(
    count=st.integers(5, 40),
    seed=st.integers(0, 2**31),
    cuts=st.sampled_from([(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]),
)
def test_the_micro_batching_does_not_move_a_sample(count: int, seed: int, cuts: tuple[int, int]) -> None:
    size, microbatches = cuts
    whole = visited(batches(count, 12, 12, seed), 5, 1)
    assert visited(batches(count, 12, size, seed), 5, microbatches) == whole


@st.composite
def rampups(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    untils = sorted(draw(st.sets(st.integers(1, 30), max_size=4)))
    batches = sorted(draw(st.sets(st.integers(1, 50), min_size=len(untils), max_size=len(untils))))
    return list(zip(untils, batches, strict=True)), draw(st.integers(50, 60))


@given(rampups(), st.integers(0, 40))
def test_batches_that_grow_follow_each_other_without_a_gap(ramp: tuple[list[tuple[int, int]], int], step: int) -> None:
    rampup, whole = ramp
    assert samples_before(step, rampup, whole) == sum(batch_at(before, rampup, whole) for before in range(step))
    assert batch_at(step, rampup, whole) <= batch_at(step + 1, rampup, whole) <= batch_at(1000, rampup, whole) == whole
