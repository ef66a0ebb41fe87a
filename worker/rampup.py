"""Global batches that grow over the first steps: how many samples each step trains on, and from which one."""

from collections.abc import Sequence

Rampup = Sequence[tuple[int, int]]
"""(until, batch): steps before `until` train on `batch` samples each. Both grow; then comes the whole global batch."""


def check(rampup: Rampup, global_batch: int) -> None:
    """Raises ValueError: not a growing series of whole numbers up to the global batch."""
    last_until, last_batch = 0, 0
    for until, batch in rampup:
        if not (last_until < until and last_batch < batch <= global_batch):
            raise ValueError(
                f"batch_rampup {tuple(rampup)}: give (until step, batch) pairs that both grow, with batches up to the "
                f"global batch of {global_batch}"
            )
        last_until, last_batch = until, batch


def batch_at(step: int, rampup: Rampup, global_batch: int) -> int:
    """Samples of one step, counted from 0."""
    return next((batch for until, batch in rampup if step < until), global_batch)


def samples_before(step: int, rampup: Rampup, global_batch: int) -> int:
    """The global index of a step's first sample."""
    samples, begun = 0, 0
    for until, batch in rampup:
        samples += batch * (min(step, until) - begun)
        begun = min(step, until)
    return samples + global_batch * (step - begun)
