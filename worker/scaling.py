"""Loss scaling for float16: gradients too small for it are computed multiplied, and divided again before the update.

One scale for the whole pipeline: it is part of the progress that every rank has, and follows from gradient norms that
every rank knows. Powers of two, so that scaling changes no bit of what does not under- or overflow.
"""

from worker.progress import Progress

GROWS_AFTER = 2000
"""Updates in a row without an overflow."""
LEAST = 2.0**-14
"""Below it no gradient of float16 can be kept: it is not the scale that is wrong."""
SCALED = frozenset({"float16"})


def adjust(progress: Progress, finite: bool) -> None:
    """After a step: half after an overflow, whose update is left out; twice after many good steps."""
    if not finite:
        progress.loss_scale, progress.good_steps = progress.loss_scale / 2, 0
        return
    progress.good_steps += 1
    if progress.good_steps == GROWS_AFTER:
        progress.loss_scale, progress.good_steps = progress.loss_scale * 2, 0
