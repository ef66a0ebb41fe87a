"""Why a pipeline is slower than it could be, in three looks (SUR-10): the loader, the stages' computing, the links."""

from typing import Any

from worker.adapt.estimate import Estimator

LOADER = 0.2
"""A first stage that gives more than this share of its time to fetching samples is bound by its loader."""
UNEVEN = 1.25
"""A stage that computes this much longer than the mean holds the others up."""
EXPOSED = 0.5
"""From this share of a stage's computing on, a one-way transfer cannot hide behind it (FORMULAS B1.3)."""


def loader_bound(estimator: Estimator) -> str:
    """That the first stage waits for its data and so holds all others up (SUR-11); "" where it does not."""
    load_s, own_s = estimator.load_s, estimator.times(0, estimator.plan.stages[0].ranks[0]).compute_s
    if load_s < LOADER * (load_s + own_s) or load_s + own_s < 1.05 * max(_computing(estimator)[1:], default=0.0):
        return ""
    return (
        f"stage 0 is bound by its loader: {load_s * 1e3:.1f} of {(load_s + own_s) * 1e3:.1f} ms a micro-batch go to "
        "fetching samples; fetch ahead, or move work out of the data set"
    )


def diagnose(estimator: Estimator) -> list[str]:
    """Lines for the user, in the order in which to look; empty where nothing stands out."""
    found = [line for line in (loader_bound(estimator),) if line]
    own = _computing(estimator)
    mean_s = sum(own) / len(own)
    found += [
        f"stage {index} computes {own_s / mean_s:.2f}x as long as the mean of all stages"
        for index, own_s in enumerate(own)
        if own_s > UNEVEN * mean_s > 0
    ]
    found += [
        f"messages between ranks {a} and {b} take {seconds * 1e3:.1f} ms, {seconds / max(own):.0%} of the slowest stage"
        for (a, b), (_, seconds) in sorted(estimator.links.transfers_s().items())
        if seconds > EXPOSED * max(own) > 0
    ]
    return found


def telemetry(estimator: Estimator) -> dict[str, Any]:
    """What is measured of stages and links, as JSON: seconds a micro-batch, bytes, bytes a second one way."""
    stages = [
        {"stage": index, "rank": rank, "forward_s": times.forward_s, "backward_s": times.backward_s,
         "load_s": times.load_s}
        for index, stage in enumerate(estimator.plan.stages)
        for rank in stage.ranks
        for times in [estimator.times(index, rank)]
    ]  # fmt: skip
    links = [
        {"ranks": pair, "bytes": size, "transfer_s": seconds, "bandwidth_bytes_per_s": size / seconds}
        for pair, (size, seconds) in sorted(estimator.links.transfers_s().items())
    ]
    return {"stages": stages, "links": links, "diagnosis": diagnose(estimator)}


def _computing(estimator: Estimator) -> list[float]:
    """Of each stage's slowest replica, a micro-batch."""
    return [
        max(estimator.times(index, rank).compute_s for rank in stage.ranks)
        for index, stage in enumerate(estimator.plan.stages)
    ]
